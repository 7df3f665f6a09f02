package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

const maxPrefixes = 4 // MAX_PREFIXES in types.h

// Config is the programs' configuration of the node. SetConfig changes it under running programs.
// The programs are connected if both interfaces are set, so Connected is not used.
type Config struct {
	verdict.Config
	Uplink, Bridge int            // interface indexes; 0: the host gets every packet, OVN sends none
	Layout         verdict.Layout // fixed per load: SetConfig cannot change it
}

// Model returns the configuration of the model that decides as the programs do.
func (c Config) Model() *verdict.Config {
	m := c.Config
	m.Connected = c.Uplink != 0 && c.Bridge != 0

	return &m
}

// Validate returns all mistakes in c, joined.
func (c Config) Validate() error {
	var errs []error

	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Uplink < 0 || c.Bridge < 0 {
		bad("interface index below zero: uplink %d, bridge %d", c.Uplink, c.Bridge)
	}

	if c.Uplink != 0 && c.Uplink == c.Bridge {
		bad("uplink and bridge are the same interface %d", c.Uplink)
	}

	if c.Node4.IsValid() && !c.Node4.Is4() {
		bad("node IPv4 address %s is not IPv4", c.Node4)
	}

	if c.Node6.IsValid() && (!c.Node6.Is6() || c.Node6.Is4In6()) {
		bad("node IPv6 address %s is not IPv6", c.Node6)
	}

	if !c.SNATPorts.IsValid() {
		bad("SNAT port range %s is empty", c.SNATPorts)
	}

	if c.GenevePort == 0 {
		bad("Geneve port is zero")
	}

	if c.EncapIP.IsValid() && (c.EncapIP == c.Node4 || c.EncapIP == c.Node6) {
		bad("encapsulation address %s is the node's own", c.EncapIP)
	}

	if c.Layout > verdict.Dedicated {
		bad("unknown %s", c.Layout)
	}

	if c.VLAN > 4094 || c.VLAN != 0 && c.Layout == verdict.Direct {
		bad("VLAN %d in layout %s", c.VLAN, c.Layout)
	}

	if c.MTU < 0 || c.MTU > 65535 {
		bad("MTU %d is out of range", c.MTU)
	}

	errs = append(errs, checkPrefixes("service", c.ServiceCIDRs), checkPrefixes("pod", c.PodCIDRs),
		checkPrefixes("routable pod", c.RoutablePods), checkPrefixes("masquerade", c.Masquerade),
		checkPrefixes("pod tunnel", c.PodTunnels))
	for _, p := range slices.Concat(c.Internal, c.External) {
		if !p.IsValid() || p.Addr().Is4In6() {
			bad("internal or external network %s is invalid", p)
		}
	}

	return errors.Join(errs...)
}

func checkPrefixes(what string, prefixes []netip.Prefix) error {
	var n4, n6 int

	for _, p := range prefixes {
		if !p.IsValid() {
			return fmt.Errorf("%s CIDR %s is invalid", what, p)
		}

		if p.Addr().Is4() {
			n4++
		} else {
			n6++
		}
	}

	if n4 > maxPrefixes || n6 > maxPrefixes {
		return fmt.Errorf("%d IPv4 and %d IPv6 %s CIDRs: at most %d of a family", n4, n6, what, maxPrefixes)
	}

	return nil
}
