package nicbridge

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dump returns the kernel's messages of one kind, without their headers.
func dump(get, header int) ([][]byte, error) {
	for try := 0; ; try++ {
		req := nl.NewNetlinkRequest(get, unix.NLM_F_DUMP)
		req.AddRawData(make([]byte, header))
		out, err := req.Execute(unix.NETLINK_ROUTE, uint16(get-2)) // RTM_NEW*
		if errors.Is(err, netlink.ErrDumpInterrupted) && try < 10 {
			continue
		}
		return out, err
	}
}

// send makes one change. If it is already done, that is not an error.
func send(kind, flags int, msg []byte) error {
	req := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	req.AddRawData(msg)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	switch {
	case flags&unix.NLM_F_CREATE != 0 && errors.Is(err, syscall.EEXIST):
		return nil
	case flags == 0 && (errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.ENOENT) ||
		errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.ENODEV)):
		return nil
	}
	return err
}

func addrsOf(index int) ([][]byte, error) {
	all, err := dump(unix.RTM_GETADDR, addrHeader)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var out [][]byte
	for _, m := range all {
		if len(m) >= addrHeader && int(order.Uint32(m[4:])) == index {
			out = append(out, m)
		}
	}
	return out, nil
}

// routes returns all routes of both families except cloned ones, in the kernel's order.
func routes() ([]route, error) {
	all, err := dump(unix.RTM_GETROUTE, routeHeader)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var out []route
	for _, m := range all {
		r, err := parseRoute(m)
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		if !r.cloned && (r.family == unix.AF_INET || r.family == unix.AF_INET6) {
			out = append(out, r)
		}
	}
	return out, nil
}

func rulesNaming(device string) ([][]byte, error) {
	all, err := dump(unix.RTM_GETRULE, ruleHeader)
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	var out [][]byte
	for _, m := range all {
		list, err := attrs(m, ruleHeader)
		if err != nil {
			return nil, fmt.Errorf("list rules: %w", err)
		}
		if cstring(find(list, fraIIFName)) == device || cstring(find(list, fraOIFName)) == device {
			out = append(out, m)
		}
	}
	return out, nil
}

// neighsOf returns the neighbours with a known link-layer address.
func neighsOf(index int) ([][]byte, error) {
	all, err := dump(unix.RTM_GETNEIGH, neighHeader)
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	var out [][]byte
	for _, m := range all {
		if len(m) < neighHeader || int(order.Uint32(m[4:])) != index || m[0] != unix.AF_INET && m[0] != unix.AF_INET6 {
			continue
		}
		list, err := attrs(m, neighHeader)
		if err != nil {
			return nil, fmt.Errorf("list neighbours: %w", err)
		}
		state := order.Uint16(m[8:])
		if find(list, unix.NDA_LLADDR) != nil && state&(unix.NUD_NOARP|unix.NUD_FAILED|unix.NUD_INCOMPLETE) == 0 {
			out = append(out, m)
		}
	}
	return out, nil
}
