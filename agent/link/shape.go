package link

import (
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
)

const (
	// shapeWindow is the time that a full bucket lasts at the rate. The queue behind it has the
	// same size.
	shapeWindow = 0.02 // s
	// minBurst is the minimum bucket size. A bucket smaller than a segment that the stack passes as
	// one packet would stall slow rates.
	minBurst = 64 << 10 // bytes
)

// Shape limits the device's transmit rate to rate bits per second. 0 removes the limit. Only limits
// of this function are replaced or removed.
func Shape(device string, rate uint64) error {
	l, err := find(device)
	if err != nil {
		return err
	}

	have, err := shaper(l)
	if err != nil {
		return err
	}

	if rate == 0 {
		if have == nil {
			return nil
		}

		if err := netlink.QdiscDel(have); err != nil {
			return fmt.Errorf("remove limit of %s: %w", device, err)
		}

		return nil
	}

	bytes := max(rate/8, 1) // per second, not 0: the time of a bucket is divided by it
	burst := min(max(uint64(float64(bytes)*shapeWindow), minBurst), math.MaxUint32/4)

	q := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: l.Attrs().Index,
			Handle:    netlink.MakeHandle(1, 0),
			Parent:    netlink.HANDLE_ROOT,
		},
		Rate:   bytes,
		Limit:  uint32(2 * burst),
		Buffer: netlink.Xmittime(bytes, uint32(burst)),
	}
	if err := netlink.QdiscReplace(q); err != nil {
		return fmt.Errorf("limit %s to %d bit/s (the kernel needs sch_tbf): %w", device, rate, err)
	}

	return nil
}

// Shaped returns the device's transmit limit in bits per second, or 0.
func Shaped(device string) (rate uint64, err error) {
	l, err := find(device)
	if err != nil {
		return 0, err
	}

	q, err := shaper(l)
	if err != nil || q == nil {
		return 0, err
	}

	return 8 * q.Rate, nil
}

// shaper returns the device's token bucket, or nil.
func shaper(l netlink.Link) (*netlink.Tbf, error) {
	list, err := retry(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(l) })
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("read limit of %s: %w", l.Attrs().Name, err)
	}

	for _, q := range list {
		if tbf, ok := q.(*netlink.Tbf); ok && tbf.Parent == netlink.HANDLE_ROOT {
			return tbf, nil
		}
	}

	return nil, nil
}
