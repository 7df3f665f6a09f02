package link

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// tcpBoundInactive selects only bound sockets that neither listen nor are connected. Such a socket
// reports its state as closed.
const tcpBoundInactive = 13

// BoundTCP returns the TCP sockets with a local port in first..last that are bound but neither
// listen nor are connected. Sockets does not return them. Linux before 6.8 does not list them; then
// the result is empty.
func BoundTCP(first, last uint16) ([]Socket, error) {
	var out []Socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		req.AddData(boundRequest{family})
		messages, err := retry(func() ([][]byte, error) { return req.Execute(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY) })
		if err != nil {
			return nil, fmt.Errorf("list bound TCP sockets: %w", err)
		}
		for _, m := range messages {
			local, err := diagLocal(m)
			if err != nil {
				return nil, fmt.Errorf("list bound TCP sockets: %w", err)
			}
			if p := local.Port(); p >= first && p <= last && !local.Addr().IsLoopback() {
				out = append(out, Socket{Proto: unix.IPPROTO_TCP, Local: local})
			}
		}
	}
	return out, nil
}

// boundRequest is struct inet_diag_req_v2 of linux/inet_diag.h.
type boundRequest struct{ family uint8 }

const diagRequestLen = 56

func (r boundRequest) Len() int { return diagRequestLen }

func (r boundRequest) Serialize() []byte {
	b := make([]byte, diagRequestLen)
	b[0], b[1] = r.family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[4:], 1<<tcpBoundInactive)
	return b
}

// diagLocal reads the local address and port of struct inet_diag_msg.
func diagLocal(m []byte) (netip.AddrPort, error) {
	const portAt, addrAt, remoteAt = 4, 8, 24
	if len(m) < remoteAt {
		return netip.AddrPort{}, fmt.Errorf("a message of %d bytes", len(m))
	}
	end := remoteAt
	if m[0] == unix.AF_INET {
		end = addrAt + 4
	}
	addr, _ := netip.AddrFromSlice(m[addrAt:end])
	return netip.AddrPortFrom(addr.Unmap(), binary.BigEndian.Uint16(m[portAt:])), nil
}
