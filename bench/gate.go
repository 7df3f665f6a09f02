package bench

import (
	"errors"
	"fmt"
)

// Bar is an upper limit of what one variant may cost in terms of another.
type Bar struct {
	Test, Family string
	Variant      string  // the one that is held to it
	Base         string  // the one that it is compared with
	Max          float64 // instructions of Variant divided by those of Base
}

// Bars are the project's: the host does not pay for the gateway, nor does the
// overlay, and North-South is no dearer than what the first generation did.
func Bars() []Bar {
	return []Bar{
		{HostUDPRR, IPv4, EBPF, NoOVS, 1.05},
		{HostUDPRR, IPv6, EBPF, NoOVS, 1.05},
		{HostTCPRR, IPv4, EBPF, NoOVS, 1.05},
		{HostTCPCRR, IPv4, EBPF, NoOVS, 1.05},
		{HostICMP, IPv4, EBPF, NoOVS, 1.05},
		{OverlayUDPRR, IPv4, EBPF, NoOVS, 1.05},
		{NSUDPRR, IPv4, EBPF, Helper, 1.00},
		{NSTCPCRR, IPv4, EBPF, Helper, 1.00},
	}
}

// Ratio returns what b compares in rows; ok is false if a row is not there.
func (b Bar) Ratio(rows []Row) (ratio float64, ok bool) {
	have, ok := find(rows, b.Variant, b.Test, b.Family)
	if !ok {
		return 0, false
	}
	base, ok := find(rows, b.Base, b.Test, b.Family)
	if !ok || base.Instructions <= 0 {
		return 0, false
	}
	return have.Instructions / base.Instructions, true
}

// Gate returns nil if rows meet every bar, and else one error for each that is
// missed, joined. A bar that rows cannot tell anything about is missed too: what was
// not measured is not fast.
func Gate(rows []Row, bars []Bar) error {
	var errs []error
	for _, b := range bars {
		ratio, ok := b.Ratio(rows)
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("check %s %s: no row of %s or of %s", b.Test, b.Family, b.Variant, b.Base))
		case ratio > b.Max:
			errs = append(errs, fmt.Errorf("check %s %s: %s is %.3f × %s, the bar is %.2f",
				b.Test, b.Family, b.Variant, ratio, b.Base, b.Max))
		}
	}
	return errors.Join(errs...)
}

func find(rows []Row, variant, test, family string) (Row, bool) {
	for _, r := range rows {
		if r.Variant == variant && r.Test == test && r.Family == family {
			return r, true
		}
	}
	return Row{}, false
}
