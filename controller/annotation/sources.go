package annotation

import (
	"net/netip"
	"strings"
)

// SourceRanges are those of a Service's loadBalancerSourceRanges that are of one family;
// none: everybody of it may come. Ranges of the other family do not count (kube-proxy's
// newBaseServiceInfo). Controller and agents must agree.
func SourceRanges(ranges []string, is4 bool) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range ranges {
		p, err := netip.ParsePrefix(strings.TrimSpace(text)) // validation lets spaces pass
		if err == nil && p.Addr().Is4() == is4 {
			out = append(out, p.Masked())
		}
	}
	return out
}
