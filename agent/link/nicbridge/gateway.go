package nicbridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// patience is the time for the gateways to answer after a move. Before the move they have
// answerTime, and moreTime once one has answered.
const (
	patience   = 15 * time.Second
	answerTime = 3 * time.Second
	moreTime   = 300 * time.Millisecond
)

// errSilent means that no gateway that answered before answers now.
var errSilent = errors.New("no gateway answers")

// answeringNeighbours returns the neighbours that answer through the device within answerTime.
// After the first answer, it waits for the others for moreTime only. The kernel sends ARP or
// neighbour discovery.
func answeringNeighbours(ctx context.Context, list []netip.Addr, index int) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()

	var (
		out    []netip.Addr
		enough <-chan time.Time // set after the first answer
	)

	left := slices.Clone(list)
	for len(left) > 0 {
		if err := probeNeighbours(left, index); err != nil {
			return nil, err
		}

		over := wait(ctx, 5*poll) != nil

		known, err := neighboursOn(index)
		if err != nil {
			return nil, err
		}

		left = slices.DeleteFunc(left, func(a netip.Addr) bool {
			state := neighbourState(known[a])
			if state&unix.NUD_REACHABLE != 0 {
				out = append(out, a)
			}

			return state&(unix.NUD_REACHABLE|unix.NUD_PERMANENT) != 0 // a static entry proves nothing
		})

		if len(out) > 0 && enough == nil {
			enough = time.After(moreTime)
		}

		select {
		case <-enough:
			over = true
		default:
		}

		if over {
			break
		}
	}

	return out, nil
}

// probeNeighbours makes the kernel probe each neighbour, unless it already does.
func probeNeighbours(list []netip.Addr, index int) error {
	known, err := neighboursOn(index)
	if err != nil {
		return err
	}

	for _, a := range list {
		head := make([]byte, neighHeader)

		head[0] = unix.AF_INET
		if a.Is6() {
			head[0] = unix.AF_INET6
		}

		order.PutUint32(head[4:], uint32(index))

		out := []attr{{unix.NDA_DST, a.AsSlice()}}
		state := neighbourState(known[a])

		if m := known[a]; m != nil {
			entry, err := attrs(m, neighHeader)
			if err != nil {
				return err
			}

			if mac := find(entry, unix.NDA_LLADDR); mac != nil && state&(unix.NUD_STALE|unix.NUD_DELAY) != 0 {
				order.PutUint16(head[8:], unix.NUD_PROBE)

				out = append(out, attr{unix.NDA_LLADDR, mac})
			}
		}

		if state&(unix.NUD_PERMANENT|unix.NUD_PROBE|unix.NUD_INCOMPLETE|unix.NUD_REACHABLE) != 0 {
			continue
		}

		if order.Uint16(head[8:]) == 0 { // no entry to probe: the kernel resolves the address anew
			head[10] = unix.NTF_USE
		}

		err := send(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, build(head, out))
		if err != nil {
			return fmt.Errorf("ask gateway %s: %w", a, err)
		}
	}

	return nil
}

// neighbourOn returns the neighbour's address if it is on the device.
func neighbourOn(msg []byte, index int) (netip.Addr, bool) {
	list, err := attrs(msg, neighHeader)
	if err != nil || int(order.Uint32(msg[4:])) != index {
		return netip.Addr{}, false
	}

	return netip.AddrFromSlice(find(list, unix.NDA_DST))
}

// neighboursOn returns the neighbours on the device, also those without a link-layer address.
func neighboursOn(index int) (map[netip.Addr][]byte, error) {
	msgs, err := dump(unix.RTM_GETNEIGH, neighHeader)
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}

	out := map[netip.Addr][]byte{}

	for _, m := range msgs {
		if a, ok := neighbourOn(m, index); ok {
			out[a] = m
		}
	}

	return out, nil
}

// neighbourState returns the NUD state in a message, or 0 without one.
func neighbourState(msg []byte) uint16 {
	if msg == nil {
		return 0
	}

	return order.Uint16(msg[8:])
}

// verify returns errSilent if none of the gateways that answered through the NIC answers through
// the bridge. Without such a gateway it does nothing.
func (s *Snapshot) verify(ctx context.Context) error {
	if len(s.Gateways) == 0 {
		return nil
	}

	bridge, err := netlink.LinkByName(s.Bridge)
	if err != nil {
		return fmt.Errorf("read bridge %s: %w", s.Bridge, err)
	}

	if err := markStale(s.Gateways, bridge.Attrs().Index); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	for {
		got, err := answeringNeighbours(ctx, s.Gateways, bridge.Attrs().Index)
		if err != nil || len(got) > 0 {
			return err
		}

		if ctx.Err() != nil {
			return fmt.Errorf("ask %v by %s: %w", s.Gateways, s.Bridge, errSilent)
		}
	}
}

// markStale marks the neighbours as stale, so that only a new answer counts.
func markStale(list []netip.Addr, index int) error {
	msgs, err := neighsOf(index)
	if err != nil {
		return err
	}

	for _, m := range msgs {
		a, ok := neighbourOn(m, index)
		if !ok || !slices.Contains(list, a) || neighbourState(m)&unix.NUD_PERMANENT != 0 {
			continue
		}

		out, err := retargetNeigh(m, index)
		if err != nil {
			return err
		}

		if err := send(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, out); err != nil {
			return fmt.Errorf("ask gateway %s again: %w", a, err)
		}
	}

	return nil
}
