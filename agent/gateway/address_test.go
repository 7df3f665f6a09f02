package gateway

import (
	"net/netip"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
)

// OVN's connections depend on the node's address, so a new address does not replace the one in use.
func TestPreferred(t *testing.T) {
	newest := address("2001:db8::3/64", "eth0") // made of a router advertisement
	newest.Dynamic = true
	second, first := address("fd00::2/64", "eth0"), address("fd00::1/64", "eth0")
	dhcp := address("10.0.0.1/24", "eth0")
	dhcp.Dynamic = true
	all := []link.Address{newest, second, first, dhcp, address("10.0.1.1/24", "eth0")}
	dynamic := []link.Address{newest, {Prefix: netip.MustParsePrefix("2001:db8::1/64"), Dynamic: true}}
	for name, tt := range map[string]struct {
		of    []link.Address
		inUse string
		is4   bool
		want  string
	}{
		"first of IPv4":                {all, "", true, "10.0.0.1/24"},
		"in use, IPv4":                 {all, "10.0.1.1", true, "10.0.1.1/24"},
		"oldest that stays, of IPv6":   {all, "", false, "fd00::1/64"},
		"in use, though it may expire": {all, "2001:db8::3", false, "2001:db8::3/64"},
		"in use and gone":              {all, "fd00::9", false, "fd00::1/64"},
		"oldest, where all may expire": {dynamic, "", false, "2001:db8::1/64"},
		"an expiring one before none":  {all[:1], "", false, "2001:db8::3/64"},
		"none of the family":           {all[:3], "", true, "invalid Prefix"},
	} {
		t.Run(name, func(t *testing.T) {
			var inUse []netip.Addr
			if tt.inUse != "" {
				inUse = append(inUse, netip.MustParseAddr(tt.inUse))
			}
			if got, ok := preferred(tt.of, inUse, tt.is4); got.String() != tt.want || ok != got.IsValid() {
				t.Errorf("%s, %t; want %s", got, ok, tt.want)
			}
		})
	}
}
