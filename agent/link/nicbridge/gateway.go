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

// This file checks that the gateways, the next hops of the NIC's routes, can be reached: before a
// move, to know which of them answer, and after it, that one of these answers through the bridge.
const (
	answerTime = 3 * time.Second        // for the first answer to answeringNeighbours
	moreTime   = 300 * time.Millisecond // for further answers after the first one
	patience   = 15 * time.Second       // for an answer after a move
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

// probeNeighbours makes the kernel probe each neighbour, unless it does so already, or the
// neighbour is known to answer or permanent.
func probeNeighbours(list []netip.Addr, index int) error {
	known, err := neighboursOn(index)
	if err != nil {
		return err
	}

	for _, a := range list {
		const settled = unix.NUD_PERMANENT | unix.NUD_PROBE | unix.NUD_INCOMPLETE | unix.NUD_REACHABLE
		if neighbourState(known[a])&settled != 0 {
			continue
		}

		msg, err := probe(a, index, known[a])
		if err != nil {
			return err
		}

		if err := send(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, msg); err != nil {
			return fmt.Errorf("ask gateway %s: %w", a, err)
		}
	}

	return nil
}

// probe returns the message that makes the kernel probe a neighbour. If its present entry has a
// link-layer address that is not confirmed, the kernel confirms it (NUD_PROBE). Otherwise the
// kernel resolves the address anew (NTF_USE). entry is nil without an entry.
func probe(a netip.Addr, index int, entry []byte) ([]byte, error) {
	head := make([]byte, neighHeader)
	order.PutUint32(head[indexAt:], uint32(index))

	head[familyAt] = unix.AF_INET
	if a.Is6() {
		head[familyAt] = unix.AF_INET6
	}

	list := []attr{{unix.NDA_DST, a.AsSlice()}}

	if neighbourState(entry)&(unix.NUD_STALE|unix.NUD_DELAY) != 0 {
		have, err := attrs(entry, neighHeader)
		if err != nil {
			return nil, err
		}

		if mac := find(have, unix.NDA_LLADDR); mac != nil {
			order.PutUint16(head[stateAt:], unix.NUD_PROBE)
			return build(head, append(list, attr{unix.NDA_LLADDR, mac})), nil
		}
	}

	head[neighFlagsAt] = unix.NTF_USE

	return build(head, list), nil
}

// neighbourOn returns the address in the message of a neighbour if it is on the device, otherwise
// false.
func neighbourOn(msg []byte, index int) (netip.Addr, bool) {
	list, err := attrs(msg, neighHeader)
	if err != nil || int(order.Uint32(msg[indexAt:])) != index {
		return netip.Addr{}, false
	}

	return netip.AddrFromSlice(find(list, unix.NDA_DST))
}

// neighboursOn returns the messages of the neighbours on the device by address, also of those
// without a link-layer address.
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

	return order.Uint16(msg[stateAt:])
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
