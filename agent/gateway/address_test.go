package gateway

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

func TestPreferredAddress(t *testing.T) {
	const dynamic, secondary = "dynamic", "secondary"

	with := func(prefix, kind string) link.Address {
		a := address(prefix, "eth0")
		a.Dynamic, a.Secondary = kind == dynamic, kind == secondary

		return a
	}
	own4, own6 := with("10.0.0.1/24", dynamic), with("fd00::1/64", "")
	vip4, vip6 := with("10.0.0.200/32", ""), with("fd00::200/128", "")
	second4, second6 := with("10.0.1.1/24", ""), with("fd00::2/64", "")

	advertised := with("2001:db8::3/64", dynamic) // made from a router advertisement
	for name, tt := range map[string]struct {
		of                         []link.Address
		internal, annotated, inUse string
		want                       string // its family is tested
	}{
		"InternalIP before the one in use":          {of: []link.Address{second4, own4}, internal: "10.0.0.1", annotated: "10.0.1.1", inUse: "10.0.1.1", want: "10.0.0.1/24"},
		"InternalIP before the one in use, IPv6":    {of: []link.Address{second6, own6}, internal: "fd00::2", annotated: "fd00::1", want: "fd00::2/64"},
		"InternalIP, though secondary":              {of: []link.Address{second4, with("10.0.1.7/24", secondary)}, internal: "10.0.1.7", want: "10.0.1.7/24"},
		"InternalIP is the virtual IP":              {of: []link.Address{vip4, own4}, internal: "10.0.0.200", want: "10.0.0.1/24"},
		"InternalIP is the virtual IP, IPv6":        {of: []link.Address{vip6, own6}, internal: "fd00::200", want: "fd00::1/64"},
		"InternalIP is single, like a virtual IP":   {of: []link.Address{vip4, with("10.0.0.1/32", dynamic)}, internal: "10.0.0.1", want: "10.0.0.1/32"},
		"InternalIP is the only address":            {of: []link.Address{vip4}, internal: "10.0.0.200", want: "10.0.0.200/32"},
		"InternalIP is on another device":           {of: []link.Address{second4, own4}, internal: "192.0.2.1", inUse: "10.0.0.1", want: "10.0.0.1/24"},
		"annotated before the one in use":           {of: []link.Address{second4, own4}, annotated: "10.0.0.1", inUse: "10.0.1.1", want: "10.0.0.1/24"},
		"annotated and gone":                        {of: []link.Address{second4, own4}, annotated: "10.0.0.9", inUse: "10.0.0.1", want: "10.0.0.1/24"},
		"in use, though it expires":                 {of: []link.Address{own6, advertised}, inUse: "2001:db8::3", want: "2001:db8::3/64"},
		"in use, though secondary":                  {of: []link.Address{second4, with("10.0.1.7/24", secondary)}, inUse: "10.0.1.7", want: "10.0.1.7/24"},
		"in use and gone":                           {of: []link.Address{advertised, own6}, inUse: "fd00::9", want: "fd00::1/64"},
		"permanent before dynamic":                  {of: []link.Address{own4, second4}, want: "10.0.1.1/24"},
		"the first of IPv4":                         {of: []link.Address{second4, with("10.0.2.1/24", "")}, want: "10.0.1.1/24"},
		"the oldest of IPv6":                        {of: []link.Address{advertised, second6, own6}, want: "fd00::1/64"},
		"the oldest of IPv6, where all may expire":  {of: []link.Address{advertised, with("2001:db8::1/64", dynamic)}, want: "2001:db8::1/64"},
		"a virtual IP comes last":                   {of: []link.Address{vip4, own4}, want: "10.0.0.1/24"},
		"a virtual IP comes last, IPv6":             {of: []link.Address{own6, vip6}, want: "fd00::1/64"},
		"a virtual IP before none":                  {of: []link.Address{vip4}, want: "10.0.0.200/32"},
		"a secondary address depends on another":    {of: []link.Address{with("10.0.1.7/24", secondary)}, want: "invalid Prefix"},
		"nothing but addresses of the other family": {of: []link.Address{own6}, internal: "fd00::1", want: "invalid Prefix"},
	} {
		t.Run(name, func(t *testing.T) {
			list := func(s string) []netip.Addr {
				if s == "" {
					return nil
				}

				return []netip.Addr{netip.MustParseAddr(s)}
			}

			is4 := true
			if p, err := netip.ParsePrefix(tt.want); err == nil {
				is4 = p.Addr().Is4()
			}

			known := knownAddresses{Internal: list(tt.internal), Annotated: list(tt.annotated), InUse: list(tt.inUse)}
			if got, ok := preferred(tt.of, known, is4); got.String() != tt.want || ok != got.IsValid() {
				t.Errorf("%s, %t; want %s", got, ok, tt.want)
			}
		})
	}
}

// keeperRig is a node whose keeper has a clock of the test.
type keeperRig struct {
	*addressKeeper
	t    *testing.T
	s    Settings
	now  time.Time
	host Host
}

func newKeeperRig(t *testing.T) *keeperRig {
	r := &keeperRig{t: t, now: time.Now(), s: Settings{Wiring: Wiring{Uplink: "eth0", Layout: verdict.Direct}, RunDir: t.TempDir()}}
	r.restart()
	r.has("172.30.0.11/24", "fd00::11/64")
	r.host.Hops = []link.Hop{
		{Device: "eth0", Prefix: link.Everything(true), Via: netip.MustParseAddr("172.30.0.1")},
		{Device: "eth0", Prefix: link.Everything(false), Via: netip.MustParseAddr("fe80::1")},
	}

	return r
}

func (r *keeperRig) restart() {
	r.addressKeeper = newAddressKeeper(r.s, loop.NewSignal(), slog.New(slog.DiscardHandler))
}

// has sets the addresses of eth0.
func (r *keeperRig) has(prefixes ...string) {
	r.host.Addresses = nil
	for _, p := range prefixes {
		r.host.Addresses = append(r.host.Addresses, address(p, "eth0"))
	}
}

// wants derives the node after a time, and checks its addresses. Those with a star are gone from
// the host.
func (r *keeperRig) wants(after time.Duration, want ...string) Node {
	r.t.Helper()
	r.now = r.now.Add(after)
	r.host.Known.InUse = r.inUse()
	n := r.keepAddresses(nodeOf(r.host, r.s), r.host, r.now)

	var got []string

	for _, p := range n.Addresses {
		text := p.String()
		if slices.Contains(n.Gone, p) {
			text += "*"
		}

		if !slices.Contains(n.HostCIDRs, p) {
			r.t.Errorf("gateway address %s is not among the host's %v", p, n.HostCIDRs)
		}

		got = append(got, text)
	}

	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		r.t.Errorf("addresses (-want +got):\n%s", diff)
	}

	return n
}

func TestVanishedAddressIsKeptForAWhile(t *testing.T) {
	r := newKeeperRig(t)
	r.wants(0, "172.30.0.11/24", "fd00::11/64")
	r.has("172.30.0.200/32", "fd00::11/64")
	r.host.Hops = r.host.Hops[1:] // the kernel removes the route with the address

	n := r.wants(0, "172.30.0.11/24*", "fd00::11/64")
	if diff := cmp.Diff([]netip.Addr{netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("fe80::1")}, n.NextHops, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("next hops (-want +got):\n%s", diff)
	}

	r.wants(addressHold-time.Second, "172.30.0.11/24*", "fd00::11/64")
	r.has("172.30.0.200/32", "172.30.0.11/24", "fd00::11/64")
	r.wants(time.Second, "172.30.0.11/24", "fd00::11/64") // it is back

	r.has("172.30.0.200/32")
	r.wants(time.Second, "172.30.0.11/24*", "fd00::11/64*")
	r.wants(addressHold-time.Second, "172.30.0.11/24*", "fd00::11/64*")
	r.wants(time.Second, "172.30.0.200/32")
	r.wants(time.Second, "172.30.0.200/32") // and does not begin again
	r.has()
	r.wants(time.Second, "172.30.0.200/32*")
	r.wants(addressHold)
}

func TestInternalIPReplacesAVanishedAddressAtOnce(t *testing.T) {
	r := newKeeperRig(t)
	r.wants(0, "172.30.0.11/24", "fd00::11/64")
	r.host.Known.Internal = []netip.Addr{netip.MustParseAddr("172.30.0.12")}
	r.wants(0, "172.30.0.11/24", "fd00::11/64")
	r.has("172.30.0.12/24", "fd00::12/64")
	r.wants(0, "172.30.0.12/24", "fd00::11/64*")
	r.wants(addressHold, "172.30.0.12/24", "fd00::12/64")
}

func TestVanishedAddressIsKeptByTheNextAgent(t *testing.T) {
	r := newKeeperRig(t)
	r.wants(0, "172.30.0.11/24", "fd00::11/64")
	r.has("172.30.0.200/32", "fd00::11/64", "fd00::7/64") // ::7 is the oldest
	r.restart()
	r.wants(time.Hour, "172.30.0.11/24*", "fd00::11/64")
	r.restart()
	r.wants(addressHold, "172.30.0.11/24*", "fd00::11/64") // its time begins with the agent
	r.wants(addressHold, "172.30.0.200/32", "fd00::11/64")
}

func TestDuplicateAddressIsGone(t *testing.T) {
	r := newKeeperRig(t)
	r.wants(0, "172.30.0.11/24", "fd00::11/64")
	r.host.Addresses[1].Duplicate, r.host.Addresses[1].Secondary = true, true
	r.wants(0, "172.30.0.11/24", "fd00::11/64*")
	r.host.Addresses[1].Duplicate = false // tentative
	r.wants(0, "172.30.0.11/24", "fd00::11/64")
}

// A record that cannot be read is replaced.
func TestBrokenRecordOfAddresses(t *testing.T) {
	r := newKeeperRig(t)

	path := filepath.Join(r.s.RunDir, addressFile)
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}

	r.wants(0, "172.30.0.11/24", "fd00::11/64")

	b, err := os.ReadFile(path)

	var c addressing
	if err != nil || json.Unmarshal(b, &c) != nil || len(c.Addresses) != 2 {
		t.Errorf("record %q, %v", b, err)
	}

	if err := removeRunFiles(r.s.RunDir); err != nil {
		t.Error(err)
	}

	if err := removeRunFiles(r.s.RunDir); err != nil {
		t.Errorf("again: %v", err)
	}
}
