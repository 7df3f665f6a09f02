package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// PortRange is a range of transport ports, both ends included. The zero PortRange is not valid: it
// stands for a missing range.
type PortRange struct{ First, Last uint16 }

// ParsePortRange parses a range such as "49152-65535". A range from port 0 is an error.
func ParsePortRange(s string) (PortRange, error) {
	from, to, found := strings.Cut(s, "-")
	first, err1 := strconv.ParseUint(from, 10, 16)
	last, err2 := strconv.ParseUint(to, 10, 16)

	if !found || err1 != nil || err2 != nil || first == 0 || first > last {
		return PortRange{}, fmt.Errorf("%q is not a port range like 49152-65535", s)
	}

	return PortRange{uint16(first), uint16(last)}, nil
}

// Set implements flag.Value. After an error, r is unchanged.
func (r *PortRange) Set(s string) error {
	parsed, err := ParsePortRange(s)
	if err == nil {
		*r = parsed
	}

	return err
}

// IsValid reports whether the range has at least one port, and does not begin at port 0.
func (r PortRange) IsValid() bool { return r.First > 0 && r.First <= r.Last }

// Contains reports whether the port is in the range. The zero PortRange contains port 0 alone.
func (r PortRange) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

// Overlaps reports whether the ranges have a port in common.
func (r PortRange) Overlaps(o PortRange) bool { return r.First <= o.Last && o.First <= r.Last }

// Len returns the number of ports of a valid range.
func (r PortRange) Len() int { return int(r.Last) - int(r.First) + 1 }

// String returns the range in the format of ParsePortRange, or "(none)" for the zero PortRange.
func (r PortRange) String() string {
	if r == (PortRange{}) {
		return "(none)"
	}

	return fmt.Sprintf("%d-%d", r.First, r.Last)
}
