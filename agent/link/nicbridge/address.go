package nicbridge

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// address contains the fields of an address message that the move needs.
type address struct {
	key   netip.Prefix // the local address with its prefix length; identifies the address on a device
	flags uint32       // IFA_F_…
	life  []byte       // struct ifa_cacheinfo: starts with preferred and valid seconds, uint32 each
}

// parseAddr reads an address message.
func parseAddr(msg []byte) (address, error) {
	list, err := attrs(msg, addrHeader)
	if err != nil {
		return address{}, err
	}

	b := find(list, unix.IFA_LOCAL)
	if b == nil {
		b = find(list, unix.IFA_ADDRESS) // IPv6 without a peer
	}

	ip, ok := netip.AddrFromSlice(b)
	if !ok {
		return address{}, fmt.Errorf("read address: %d bytes", len(b))
	}

	a := address{
		key:   netip.PrefixFrom(ip, int(msg[1])),
		flags: uint32(msg[addrFlagsAt]),
		life:  find(list, unix.IFA_CACHEINFO),
	}
	if f := find(list, unix.IFA_FLAGS); f != nil {
		a.flags = u32(f)
	}

	return a, nil
}

func (a address) is6() bool { return a.key.Addr().Is6() }

// dynamic reports whether the address expires unless renewed.
func (a address) dynamic() bool { return a.flags&unix.IFA_F_PERMANENT == 0 }

// inOrder sorts the messages of a dump into the order of addition that reproduces the dump. The
// kernel appends IPv4 addresses, and inserts IPv6 addresses before those of the same scope.
func inOrder(msgs [][]byte) [][]byte {
	var v4, v6 [][]byte

	for _, m := range msgs {
		if m[familyAt] == unix.AF_INET6 {
			v6 = append(v6, m)
		} else {
			v4 = append(v4, m)
		}
	}

	slices.Reverse(v6)

	return append(v4, v6...)
}

// renewed returns msg with the lifetime that the same address has in others, where it may have been
// renewed. A permanent address stays as it is.
func renewed(msg []byte, others [][]byte) []byte {
	a, err := parseAddr(msg)
	if err != nil || !a.dynamic() {
		return msg
	}

	for _, o := range others {
		other, err := parseAddr(o)
		if err != nil || other.key != a.key || other.life == nil {
			continue
		}

		list, _ := attrs(msg, addrHeader)
		for i := range list {
			if list[i].typ() == unix.IFA_CACHEINFO {
				list[i].data = other.life
			}
		}

		return build(msg[:addrHeader], list)
	}

	return msg
}

// lookup returns the message of the same address in others, or nil.
func lookup(msg []byte, others [][]byte) []byte {
	a, err := parseAddr(msg)
	for _, o := range others {
		if other, otherErr := parseAddr(o); err == nil && otherErr == nil && a.key == other.key {
			return o
		}
	}

	return nil
}
