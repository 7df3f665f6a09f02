package campaign

import (
	"bytes"
	"context"
	"net"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// respond sends the numbers of probes back, and answers nothing else: a server that answered an
// attacker's frames would wait for missing neighbours and lose probes itself. network is an
// argument for net.ListenPacket.
func respond(ctx context.Context, ns, network, address string) error {
	var c net.PacketConn
	err := netns.Do(ns, func() (err error) {
		c, err = net.ListenPacket(network, address)
		return err
	})
	if err != nil {
		return err
	}
	if b, ok := c.(interface{ SetReadBuffer(int) error }); ok {
		if err := b.SetReadBuffer(4 << 20); err != nil {
			return err
		}
	}
	context.AfterFunc(ctx, func() { c.Close() })
	go func() {
		for buf := make([]byte, 65536); ctx.Err() == nil; {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				continue // closed, or an ICMP error for an earlier reply
			}
			if seq, ok := bytes.CutPrefix(buf[:n], []byte("seq ")); ok {
				_, _ = c.WriteTo(seq, from) // the probe detects a lost reply
			}
		}
	}()
	return nil
}
