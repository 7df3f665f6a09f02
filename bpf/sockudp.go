package bpf

import "slices"

// udpBackends finds the UDP backends that no service has any more, because sockets that are
// connected to them must be destroyed. It counts the slots of each backend, in all sets of UDP
// frontends.
type udpBackends struct {
	sets    map[uint32]bool // the sets of UDP frontends
	count   map[sockBack]int
	touched map[sockBack]bool // left a slot since the last call of gone
}

// use records that frontends of this protocol lead to a set with these backends, unless already
// recorded.
func (u *udpBackends) use(set uint32, proto uint8, slots []sockBack) {
	if proto == protoUDP && !u.sets[set] {
		u.sets[set] = true
		u.replace(set, nil, slots)
	}
}

// replace records that the slots of a set have changed. Other sets than those of UDP are ignored.
func (u *udpBackends) replace(set uint32, old, now []sockBack) {
	if !u.sets[set] {
		return
	}

	for _, b := range old {
		if u.count[b]--; u.count[b] == 0 {
			delete(u.count, b)
		}

		u.touched[b] = true
	}

	for _, b := range now {
		u.count[b]++
	}
}

// gone returns the backends that have left their last slot since the previous call, sorted.
func (u *udpBackends) gone() []sockBack {
	var gone []sockBack

	for b := range u.touched {
		if u.count[b] == 0 && b != (sockBack{}) {
			gone = append(gone, b)
		}
	}

	clear(u.touched)
	slices.SortFunc(gone, compareBacks)

	return gone
}
