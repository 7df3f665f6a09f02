package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// The harness detects a variant whose counters do not increase as expected. All its results depend
// on this check.
func TestExpectDetectsWrongCounts(t *testing.T) {
	udp, tcp := test{name: bench.HostUDPRR, family: bench.IPv4}, test{name: bench.HostTCPCRR, family: bench.IPv4}

	stream := test{name: bench.HostStreamIn, family: bench.IPv4}
	for _, tt := range []struct {
		name      string
		test      test
		got, want int
		ok        bool
	}{
		{"as many", udp, 100, 100, true},
		{"one is missing", udp, 99, 100, false},
		{"one too many", udp, 101, 100, false},
		{"none of what should not be", udp, 0, 0, true},
		{"one of what should not be", udp, 1, 0, false},
		{"TCP, as many", tcp, 300, 300, true},
		{"TCP, acknowledgements on top", tcp, 500, 300, true},
		{"TCP, one is missing", tcp, 299, 300, false},
		{"TCP, far too many", tcp, 633, 300, false},
		{"TCP, one of what should not be", tcp, 1, 0, false},
		{"stream, a packet a write", stream, 100, 100, true},
		{"stream, many packets a write", stream, 6000, 100, true},
		{"stream, one is missing", stream, 99, 100, false},
		{"stream, one of what should not be", stream, 1, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.test.expect("packets", tt.got, tt.want); (err == nil) != tt.ok {
				t.Errorf("expect(%d, %d) = %v, want ok %t", tt.got, tt.want, err, tt.ok)
			}
		})
	}
}

// The variants have the tests that the bars compare.
func TestBarsAreMeasured(t *testing.T) {
	var rows []bench.Row

	for _, name := range bench.AllVariants() {
		v, err := newVariant(name, 1000, nil)
		if err != nil {
			t.Fatal(err)
		}

		if got := v.traits().name; got != name {
			t.Errorf("variant %q calls itself %q", name, got)
		}

		for _, tt := range v.traits().plan() {
			if _, ok := v.(interface{ podsIPv6(context.Context) error }); !ok && tt.family == bench.IPv6 && !strings.HasPrefix(tt.name, "host_") {
				t.Errorf("%s has %s by IPv6, but does not give it to pods", name, tt.name)
			}

			rows = append(rows, bench.Row{Test: tt.name, Variant: name, Family: tt.family, Instructions: 1})
		}
	}

	for _, bar := range bench.Bars() {
		if _, ok := bar.Ratio(rows); !ok {
			t.Errorf("the rows of %+v are not measured", bar)
		}
	}
}

// gateRows returns the rows that the gate measures, each with a cost of 1.
func gateRows(t *testing.T) []bench.Row {
	t.Helper()

	var rows []bench.Row

	for _, name := range bench.Variants() {
		v, err := newVariant(name, 1000, nil)
		if err != nil {
			t.Fatal(err)
		}

		for _, tt := range v.traits().plan() {
			rows = append(rows, bench.Row{Test: tt.name, Variant: name, Family: tt.family, Instructions: 1})
		}
	}

	return bench.Short(rows)
}

// The gate measures the rows of all its bars, and of every ratio in the accepted baseline. The
// baseline has every ratio that the gate checks.
func TestGateIsMeasured(t *testing.T) {
	rows := gateRows(t)
	for _, bar := range bench.ShortBars() {
		if _, ok := bar.Ratio(rows); !ok {
			t.Errorf("the rows of %+v are not measured", bar)
		}
	}

	b, err := bench.ReadBaseline(filepath.Join("..", "baseline.json"))
	if err != nil {
		t.Fatal(err)
	}

	key := func(r bench.Ratio) string {
		return strings.Join([]string{r.Test, r.Family, r.Variant, "/", r.Base, r.BaseTest}, " ")
	}

	accepted := map[string]bool{}
	for _, r := range b.Ratios {
		accepted[key(r)] = true
	}

	for _, r := range bench.Ratios(rows) {
		if !accepted[key(r)] {
			t.Errorf("the gate checks %s, which bench/baseline.json does not have", key(r))
		}

		delete(accepted, key(r))
	}

	for name := range accepted {
		t.Errorf("bench/baseline.json has %s, which the gate does not measure", name)
	}
}

// Every variant of this project that the gate measures has the settings that a user gets by
// default. The table of settings is generated from those of ovnkube.
func TestGateMeasuresDefaults(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}

	byDefault := func(flag string) string {
		t.Helper()

		m := regexp.MustCompile("(?m)^\\| `" + flag + "` \\| [^|]* \\| `([^`]*)` \\|").FindSubmatch(text)
		if m == nil {
			t.Fatalf("no default of %s in docs/configuration.md", flag)
		}

		return string(m[1])
	}
	want := map[string]string{
		"gateway-shortcuts": byDefault("gateway-shortcuts"), "gateway-backend": byDefault("gateway-backend"),
		"counted-service-ports": byDefault("counted-service-ports"), "gateway-shadow-rate": byDefault("gateway-shadow-rate"),
	}

	layouts := map[string]bool{}

	var ours []string

	for _, name := range bench.Variants() {
		v, err := newVariant(name, 1000, nil)
		if err != nil {
			t.Fatal(err)
		}

		var programs *ebpf

		switch v := v.(type) {
		case *ebpf:
			programs = v
		case *bridged:
			programs = &v.ebpf
		case *flowed:
			t.Errorf("%s has the backend openflow, the default is %s", name, want["gateway-backend"])
			continue
		default: // of others
			continue
		}

		ours = append(ours, name)
		layouts[v.traits().layout] = true

		o := programs.options()

		got := map[string]string{
			"gateway-shortcuts": "off", "gateway-backend": "ebpf",
			"counted-service-ports": strconv.Itoa(o.CountServices), "gateway-shadow-rate": "0", // the harness has no such programs
		}
		if o.Shortcuts.On {
			got["gateway-shortcuts"] = "auto"
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("settings of %s (-default +measured):\n%s", name, diff)
		}

		if asShipped := (bpf.ShortcutOptions{On: true}); name != bench.NeverShort && o.Shortcuts != asShipped || len(o.Sizes) > 0 {
			t.Errorf("%s has shortcuts %+v and sizes %+v, want those as shipped", name, o.Shortcuts, o.Sizes)
		}
	}

	if diff := cmp.Diff(bench.Ours(), ours); diff != "" {
		t.Errorf("variants of this project that the gate measures (-bench.Ours +measured):\n%s", diff)
	}

	if layout := byDefault("gateway-layout"); !layouts[layout] {
		t.Errorf("the gate measures layouts %v, and not the default %s", layouts, layout)
	}
}

func TestAddress(t *testing.T) {
	v4, v6 := newAddress("172.30.0.11", 0x1234), newAddress("fd00::b", 0x1234)
	if diff := cmp.Diff([]byte{2, 0, 0x12, 0x34, 172, 30, 0, 11}, v4.raw[:8]); diff != "" || v4.len != 16 {
		t.Errorf("IPv4 (-want +got), length %d:\n%s", v4.len, diff)
	}

	if diff := cmp.Diff([]byte{10, 0, 0x12, 0x34, 0, 0, 0, 0, 0xfd, 0}, v6.raw[:10]); diff != "" || v6.raw[23] != 0xb || v6.len != 28 {
		t.Errorf("IPv6 (-want +got), length %d:\n%s", v6.len, diff)
	}
}

func TestEchoRequestChecksum(t *testing.T) {
	var sum uint32

	p := echoRequest(0xbeef)
	for i := 0; i < len(p); i += 2 {
		sum += uint32(p[i])<<8 | uint32(p[i+1])
	}

	if sum = sum>>16 + sum&0xffff; sum != 0xffff {
		t.Errorf("checksum does not add up: %#x", sum)
	}
}

func TestNumbers(t *testing.T) {
	if got, err := numbers("1,100,100000"); err != nil || !cmp.Equal(got, []int{1, 100, 100000}) {
		t.Errorf("numbers: %v, %v", got, err)
	}

	for _, bad := range []string{"", "0", "1,", "-5", "x"} {
		if got, err := numbers(bad); err == nil {
			t.Errorf("numbers(%q) = %v", bad, got)
		}
	}
}
