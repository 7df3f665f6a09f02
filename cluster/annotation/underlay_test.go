package annotation

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestUnderlay(t *testing.T) {
	v := VIF{
		ID: "1b2c", MAC: net.HardwareAddr{0xfa, 0x16, 0x3e, 0, 0, 1}, Address: netip.MustParseAddr("10.0.0.11"), MTU: 1442, Ports: 61,
	}

	text := FormatUnderlay(v)
	if want := `{"vif":"1b2c","mac":"fa:16:3e:00:00:01","address":"10.0.0.11","mtu":1442,"ports":61}`; text != want {
		t.Errorf("%s, want %s", text, want)
	}

	got, err := ParseUnderlay(map[string]string{Underlay: text})
	if diff := cmp.Diff(v, got, cmpopts.EquateComparable(netip.Addr{})); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}

	for _, bad := range []string{
		``, `{}`, `[]`, `{"mac":"fa:16:3e:00:00:01","mtu":1442}`, `{"mac":"fa","address":"10.0.0.11","mtu":1442}`,
		`{"mac":"fa:16:3e:00:00:01:02:03","address":"10.0.0.11","mtu":1442}`, `{"mac":"fa:16:3e:00:00:01","address":"10.0.0.11"}`,
		`{"mac":"fa:16:3e:00:00:01","address":"10.0.0.11","mtu":70000}`, `{"mac":"fa:16:3e:00:00:01","address":"fe80::1%eth0","mtu":1442}`,
		`{"mac":"fa:16:3e:00:00:01","address":"10.0.0.11","mtu":1442,"ports":-1}`,
	} {
		if v, err := ParseUnderlay(map[string]string{Underlay: bad}); err == nil || errors.Is(err, ErrNotSet) {
			t.Errorf("%s: %v, %v", bad, v, err)
		}
	}

	if _, err := ParseUnderlay(nil); !errors.Is(err, ErrNotSet) {
		t.Errorf("absent: %v", err)
	}
}

func TestUnderlayPrefixLength(t *testing.T) {
	if n, err := ParseUnderlayPrefixLength(map[string]string{UnderlayPrefixLength: "26"}); n != 26 || err != nil {
		t.Errorf("%d, %v", n, err)
	}

	if _, err := ParseUnderlayPrefixLength(nil); !errors.Is(err, ErrNotSet) {
		t.Errorf("absent: %v", err)
	}

	if _, err := ParseUnderlayPrefixLength(map[string]string{UnderlayPrefixLength: "/26"}); err == nil || errors.Is(err, ErrNotSet) {
		t.Errorf("malformed: %v", err)
	}
}
