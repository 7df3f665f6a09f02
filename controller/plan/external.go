package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

// externalAddresses are the addresses outside of the cluster that the service
// is served on: external IPs and those that a load balancer announces, unless
// it says that it only forwards to node ports. What cannot be one goes to u, if
// that is not nil.
func (cfg Config) externalAddresses(svc *corev1.Service, u *shortfall) []netip.Addr {
	var out []netip.Addr
	take := func(what, text string, allowed []netip.Prefix) {
		a, err := cfg.externalAddress(svc, text)
		if err == nil && len(allowed) > 0 && !contains(allowed, a) {
			err = errNotAllowed
		}
		switch {
		case err == nil:
			out = append(out, a)
		case u != nil:
			u.add("%s %s: %v", what, text, err)
		}
	}
	for _, text := range annotation.ExternalIPs(svc) {
		take("external IP", text, cfg.ExternalIPs)
	}
	for _, text := range ingressAddresses(svc) {
		take("load balancer address", text, nil)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// errNotAllowed: Kubernetes lets everybody who may write a Service give it any external
// IP, and take what the cluster sends there (CVE-2020-8554).
var errNotAllowed = errors.New("not in the ranges of --allow-external-ips")

// ingressAddresses are what the load balancer announces, but for those of one that
// talks to node ports itself (ipMode Proxy).
func ingressAddresses(svc *corev1.Service) []string {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	var out []string
	for _, i := range annotation.Ingress(svc) {
		if i.IP != "" && (i.IPMode == nil || *i.IPMode == corev1.LoadBalancerIPModeVIP) {
			out = append(out, i.IP)
		}
	}
	return out
}

// externalAddress returns the address, or why it cannot be one: whoever may make a
// Service must not take other services', pods' or the gateways' own traffic.
func (cfg Config) externalAddress(svc *corev1.Service, text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if a = a.Unmap(); err != nil || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("not an address")
	}
	if !cfg.has(a.Is4()) {
		return netip.Addr{}, fmt.Errorf("the cluster has no %s", familyName(a.Is4()))
	}
	if len(ofFamily(clusterAddresses(svc), a.Is4())) == 0 {
		return netip.Addr{}, fmt.Errorf("the service has no %s cluster IP", familyName(a.Is4()))
	}
	if !a.IsGlobalUnicast() {
		return netip.Addr{}, fmt.Errorf("not a global unicast address")
	}
	for _, inside := range []struct {
		what     string
		prefixes []netip.Prefix
	}{
		{"service network", cfg.ServiceCIDRs},
		{"pod network", cfg.ClusterCIDRs},
		{"join network", cfg.JoinSubnets},
		{"masquerade network", []netip.Prefix{annotation.MasqueradeOf(a.Is4()).Subnet}},
	} {
		if contains(inside.prefixes, a) {
			return netip.Addr{}, fmt.Errorf("inside the %s", inside.what)
		}
	}
	return a, nil
}

// has says whether the cluster's pods have addresses of the family.
func (cfg Config) has(is4 bool) bool {
	return slices.ContainsFunc(cfg.ClusterCIDRs, func(p netip.Prefix) bool { return p.Addr().Is4() == is4 })
}

func familyName(is4 bool) string {
	if is4 {
		return "IPv4"
	}
	return "IPv6"
}
