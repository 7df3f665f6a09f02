package annotation

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const (
	id1  = "11111111-1111-4111-8111-11111111111a"
	id2  = "22222222-2222-4222-8222-22222222222b"
	line = "5 " + id1 + " fa:16:3e:00:00:05 10.1.0.5,fd00::5 " + id2 + "\n"
)

func TestPoolPortsRoundTrip(t *testing.T) {
	text := line +
		"6 11111111-1111-4111-8111-111111111116 fa:16:3e:00:00:06 10.1.0.6 ?\n" +
		"4094 " + id2 + " fa:16:3e:00:00:07 10.1.0.7 - held\n"

	ports, err := ParsePoolPorts(text)
	if err != nil || len(ports) != 3 {
		t.Fatalf("%+v, %v", ports, err)
	}

	if ports[0].Tag != 5 || ports[0].ID != id1 || ports[0].Held || !ports[2].Held {
		t.Errorf("got %+v", ports)
	}

	groups := [][]string{ports[0].Groups, ports[1].Groups, ports[2].Groups}
	if want := [][]string{{id2}, nil, {}}; !reflect.DeepEqual(groups, want) {
		t.Errorf("got groups %#v, want %#v: known, unknown, and no groups", groups, want)
	}

	if again, err := FormatPoolPorts(ports); err != nil || again != text {
		t.Errorf("got %q, %v, want %q", again, err, text)
	}

	slices.Reverse(ports)

	if again, err := FormatPoolPorts(ports); err != nil || again != text {
		t.Errorf("of ports in another order: got %q, %v, want %q", again, err, text)
	}
}

func TestPoolErrorsNameLineAndField(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{id1, "x", "line 2: port:"},
		{"5 ", "4095 ", "line 2: tag:"},
		{"5 ", "0 ", "line 2: tag:"},
		{"5 " + id1, id1 + " 5", "line 2: tag:"}, // the format before tags came first
		{"fa:16", "fb:16", "line 2: mac:"},
		{"10.1.0.5", "fd00::6", "line 2: addresses:"},
		{"10.1.0.5", "10.1.0.7,10.1.0.8", "line 2: addresses:"},
		{id2, "x", "line 2: groups:"},
		{id2, id2 + ",?", "line 2: groups:"},
		{id2, id2 + " gone", "line 2: want"},
		{id1, id2, "line 2: port " + id2 + " is there twice"},
		{"5 ", "6 ", "line 2: tag 6 is there twice"},
		{"10.1.0.5", "10.1.0.6", "line 2: address 10.1.0.6 is there twice"},
	} {
		text := "6 " + id2 + " fa:16:3e:00:00:06 10.1.0.6 -\n" + strings.Replace(line, tt.old, tt.new, 1)
		if _, err := ParsePoolPorts(text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s for %s: got %v, want %q", tt.new, tt.old, err, tt.want)
		}
	}

	_, err := ParsePoolPorts(strings.Repeat(" ", maxPoolBytes+1))
	if err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("too long: %v", err)
	}
}

func TestPoolRoundTrip(t *testing.T) {
	text := `{"cluster":"c","node":"n","vif":"` + id1 + `","trunk":"` + id2 + `","network":"` + id2 +
		`","gateways":{"10.1.0.1/28":"fa:16:3e:00:00:01","fd00::1/64":"fa:16:3e:00:00:02"},"mtu":1442,` +
		`"groups":["` + id1 + `","` + id2 + `"]}`

	p, err := ParsePool(text)
	if err != nil || FormatPool(p) != text {
		t.Fatalf("%+v, %v", p, err)
	}

	for _, field := range []struct{ old, new, want string }{
		{id1, "x", "vif:"},
		{"1442", "100", "mtu:"},
		{`["` + id1, `["x`, `groups: "x" is not a UUID`},
		{`"n"`, `""`, "node:"},
		{"fa:16", "fb:16", "gateways: 10.1.0.1/28: fb:16:3e:00:00:01 is a multicast address"},
		{"fa:16:3e:00:00:02", "x", "gateways: fd00::1/64: address x"},
		{"10.1.0.1/28", "", "gateways: invalid Prefix is not"},
		{"10.1.0.1/28", "10.1.0.1", "no '/'"},
		{"10.1.0.1/28", "::ffff:10.1.0.1/124", "gateways: ::ffff:10.1.0.1/124 is not"},
		{"10.1.0.1/28", "10.1.0.0/28", "gateways: 10.1.0.0/28 is a subnet"},
		{"10.1.0.1/28", "fd00::2/80", "gateways: subnets of fd00::1/64 and fd00::2/80 overlap"},
	} {
		if _, err := ParsePool(strings.Replace(text, field.old, field.new, 1)); err == nil || !strings.Contains(err.Error(), field.want) {
			t.Errorf("%s: %v", field.want, err)
		}
	}
	// The VM's port was deleted, so nothing else of the pool is known. Its ports must still be
	// released.
	gone := Pool{Cluster: "c", Node: "n", Groups: []string{id1}}
	if p, err := ParsePool(FormatPool(gone)); err != nil || !reflect.DeepEqual(p, gone) {
		t.Errorf("a pool without its port: %+v, %v", p, err)
	}
	// The router's interface was deleted.
	p.Gateways = nil
	if got, err := ParsePool(FormatPool(p)); err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("a pool without a router: %+v, %v", got, err)
	}
}

func TestPool_gatewayIsOfTheAddressesSubnet(t *testing.T) {
	p := Pool{Gateways: map[netip.Prefix]string{
		netip.MustParsePrefix("10.1.0.1/28"):  "fa:16:3e:00:00:01",
		netip.MustParsePrefix("10.1.0.17/28"): "fa:16:3e:00:00:02",
		netip.MustParsePrefix("fd00::1/64"):   "fa:16:3e:00:00:03",
	}}

	for _, tt := range []struct{ address, gateway, mac string }{
		{"10.1.0.14", "10.1.0.1/28", "fa:16:3e:00:00:01"},
		{"10.1.0.18", "10.1.0.17/28", "fa:16:3e:00:00:02"},
		{"fd00::12", "fd00::1/64", "fa:16:3e:00:00:03"},
		{"10.1.0.32", "", ""},
		{"fd00:0:0:1::12", "", ""},
	} {
		gateway, mac, ok := p.Gateway(netip.MustParseAddr(tt.address))
		if want := tt.gateway != ""; ok != want {
			t.Errorf("%s: got a gateway: %v, want %v", tt.address, ok, want)
			continue
		}

		if ok && (gateway.String() != tt.gateway || mac.String() != tt.mac) {
			t.Errorf("%s: got %s by %s, want %s by %s", tt.address, gateway, mac, tt.gateway, tt.mac)
		}
	}
}

func FuzzParsePoolPorts(f *testing.F) {
	f.Add(line)
	f.Add("2 " + id1 + " fa:16:3e:00:00:05 10.1.0.5 -\n3 " + id2 + " fa:16:3e:00:00:06 fd00::6 ? held\n")
	f.Fuzz(func(t *testing.T, text string) {
		ports, err := ParsePoolPorts(text)
		if err != nil {
			return
		}

		formatted, err := FormatPoolPorts(ports)
		if err != nil {
			t.Fatal(err)
		}

		slices.SortFunc(ports, func(a, b PoolPort) int { return a.Tag - b.Tag })

		if again, err := ParsePoolPorts(formatted); err != nil || !reflect.DeepEqual(ports, again) {
			t.Errorf("%q: %+v, then %+v, %v", text, ports, again, err)
		}
	})
}
