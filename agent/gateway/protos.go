package gateway

import (
	"errors"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// hostProtos are the protocols without ports that the host uses: those of its tunnels
// with their peers, and those it has raw sockets for. With anybody, as a tunnel without
// a remote end does, is not said: then every peer's would be the host's. In layout
// dedicated the node's address is OVN's alone.
func (g *Gateway) hostProtos() ([]bpf.NSKey, error) {
	if g.s.Layout == Dedicated {
		return nil, nil
	}
	tunnels, errTunnels := link.HostProtos()
	raw, errRaw := link.RawProtos()
	tunnels = slices.DeleteFunc(tunnels, func(p link.HostProto) bool { return p.Remote.IsUnspecified() })
	var out []bpf.NSKey
	for _, p := range append(tunnels, raw...) {
		out = append(out, bpf.NSKey{Remote: p.Remote, Proto: p.Proto})
	}
	return out, errors.Join(errTunnels, errRaw)
}

// syncHostProtos notes them for either backend. What cannot be read stays as it was.
func (g *Gateway) syncHostProtos() {
	scan := func() ([]bpf.NSKey, error) {
		protos, err := g.hostProtos()
		if err == nil {
			g.applied.protos = protos
		}
		return protos, err
	}
	var err error
	if g.bpf != nil {
		err = g.bpf.SyncHostProtos(scan)
	} else {
		_, err = scan()
	}
	g.degraded(extraProtos, err)
}
