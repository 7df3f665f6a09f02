package bench

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestLimit(t *testing.T) {
	for _, tt := range []struct{ value, spread, want float64 }{
		{1, 0, 1.015},
		{1, 0.0075, 1.015},
		{1, 0.01, 1.02},
		{2, 0.001, 2.03},
		{2, 0.05, 2.2},
	} {
		if got := (Ratio{Value: tt.value, Spread: tt.spread}).Limit(); abs(got-tt.want) > 1e-12 {
			t.Errorf("limit of %v ± %v is %v, want %v", tt.value, tt.spread, got, tt.want)
		}
	}
}

func accepted(t *testing.T) *Baseline {
	t.Helper()

	b, err := Accept(full(), "abc1234", "a start")
	if err != nil {
		t.Fatal(err)
	}

	return b
}

// slower returns full rows with one changed row.
func slower(variant, test, family string, by float64) []Row {
	rows := full()
	for i, r := range rows {
		if r.Variant == variant && r.Test == test && r.Family == family {
			rows[i].Instructions *= 1 + by
		}
	}

	return rows
}

func TestBaseline(t *testing.T) {
	b := accepted(t)
	if err := b.Check(full()); err != nil {
		t.Errorf("the same rows: %v", err)
	}

	for _, r := range b.Ratios {
		// A ratio's own row gets slower, or the row that it is compared with gets faster.
		for _, tt := range []struct {
			what   string
			rows   []Row
			caught bool
		}{
			{"1.4 % slower", slower(r.Variant, r.Test, r.Family, 0.014), false},
			{"1.6 % slower", slower(r.Variant, r.Test, r.Family, 0.016), true},
			{"3 % slower", slower(r.Variant, r.Test, r.Family, 0.03), true},
			{"3 % faster", slower(r.Variant, r.Test, r.Family, -0.03), false},
			{"base 3 % slower", slower(r.Base, r.bar().baseTest(), r.Family, 0.03), false},
			{"base 3 % faster", slower(r.Base, r.bar().baseTest(), r.Family, -0.03), true},
		} {
			worse, err := b.Worse(tt.rows)
			if err != nil {
				t.Fatal(err)
			}

			if _, caught := worse[r]; caught != tt.caught {
				t.Errorf("%s, %s: caught %t", r.name(), tt.what, caught)
			}

			if err := b.Check(tt.rows); tt.caught && (err == nil || !strings.Contains(err.Error(), r.name())) {
				t.Errorf("%s, %s: %v", r.name(), tt.what, err)
			}
		}
	}

	other := slower(Shortcuts, HostUDPRR, IPv4, 0.03)
	for i := range other {
		other[i].Kernel = "6.13"
	}

	if err := b.Check(other); err == nil || !strings.Contains(err.Error(), "it is of Linux 6.12, this is 6.13") {
		t.Errorf("another kernel: %v", err)
	}

	if err := b.Check(slower(Shortcuts, HostUDPRR, IPv4, 0.03)); err == nil || strings.Contains(err.Error(), "kernel") {
		t.Errorf("the same kernel: %v", err)
	}

	if err := b.Check(full()[1:]); err == nil || !strings.Contains(err.Error(), "not measured") {
		t.Errorf("a row is missing: %v", err)
	}
}

func TestSpreadWidensTheLimit(t *testing.T) {
	rows := full()
	for i := range rows {
		rows[i].Spread = 0.01
	}

	b, err := Accept(rows, "abc1234", "noisy")
	if err != nil {
		t.Fatal(err)
	}

	if err := b.Check(slower(Shortcuts, HostUDPRR, IPv4, 0.028)); err != nil {
		t.Errorf("within twice the spread of 1.41 %%: %v", err)
	}

	if err := b.Check(slower(Shortcuts, HostUDPRR, IPv4, 0.029)); err == nil {
		t.Error("more than twice the spread of 1.41 % was not caught")
	}
}

// Every row of ours that CI measures is checked, and no other row except those with a bar.
func TestRatios_haveEveryRowOfOurs(t *testing.T) {
	var rows []Row

	for _, v := range Variants() {
		for _, test := range ShortTests() {
			rows = append(rows, row(v, test, IPv4, 10000))
		}

		rows = append(rows, row(v, HostUDPRR, IPv6, 10000), row(v, NSTCPRR, IPv4, 10000))
	}

	checked := map[string]bool{}
	for _, r := range Ratios(rows) {
		checked[Row{Variant: r.Variant, Test: r.Test, Family: r.Family}.Key()] = true
		if r.Test == NSTCPRR {
			t.Errorf("%s is checked", r.name())
		}
	}

	for _, r := range Short(rows) {
		want := slices.Contains(Ours(), r.Variant) || r.Variant == OVNKOnOVN && r.Test == HostUDPRR && r.Family == IPv4
		if want != checked[r.Key()] {
			t.Errorf("%s is checked: %t", r.Key(), !want)
		}
	}
}

func TestCheckPlanted(t *testing.T) {
	b, rows := accepted(t), full()
	host, _ := Find(rows, Shortcuts, HostUDPRR, IPv4)

	planted := func(by float64) Row {
		r := host
		r.Variant, r.Instructions = Planted, host.Instructions*(1+by)

		return r
	}
	if err := b.CheckPlanted(rows, planted(0.03)); err != nil {
		t.Error(err)
	}

	for _, by := range []float64{0, 0.02, 0.04, -0.03} {
		if err := b.CheckPlanted(rows, planted(by)); err == nil {
			t.Errorf("planted %v is no 3 %%", by)
		}
	}

	blunt := *b

	blunt.Ratios = nil
	if err := blunt.CheckPlanted(rows, planted(0.03)); err == nil || !strings.Contains(err.Error(), "not caught") {
		t.Errorf("a gate that watches nothing: %v", err)
	}
}

func TestAcceptRefuses(t *testing.T) {
	for name, f := range map[string]func() (*Baseline, error){
		"no reason": func() (*Baseline, error) { return Accept(full(), "abc1234", " ") },
		"dirty":     func() (*Baseline, error) { return Accept(full(), "abc1234-dirty", "x") },
		"a bar":     func() (*Baseline, error) { return Accept(slower(EBPF, HostUDPRR, IPv4, 0.01), "abc1234", "x") },
		"a bar of CI": func() (*Baseline, error) {
			return Accept(Short(slower(Shortcuts, HostUDPRR, IPv4, 0.01)), "abc1234", "x")
		},
		"a row of CI": func() (*Baseline, error) { return Accept(Short(full())[1:], "abc1234", "x") },
		"no rows":     func() (*Baseline, error) { return Accept(nil, "abc1234", "x") },
	} {
		if b, err := f(); err == nil {
			t.Errorf("%s: accepted %+v", name, b)
		}
	}
}

// CI's own rows are enough for its baseline.
func TestAccept_takesTheRowsOfCI(t *testing.T) {
	b, err := Accept(Short(full()), "abc1234", "a start")
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(accepted(t).Ratios, b.Ratios); diff != "" {
		t.Errorf("ratios (-of all rows +of those of CI):\n%s", diff)
	}
}

func TestMessage(t *testing.T) {
	old := &Baseline{Ratios: []Ratio{
		{HostUDPRR, IPv4, EBPF, NoOVS, "", 1.02, 0}, {HostTCPRR, IPv4, EBPF, NoOVS, "", 1.01, 0}, {HostICMP, IPv4, EBPF, NoOVS, "", 1.5, 0},
	}}
	b := &Baseline{Commit: "abc1234", Kernel: "6.12.1", Reason: "A new check.", Ratios: []Ratio{
		{HostUDPRR, IPv4, EBPF, NoOVS, "", 1.0404, 0}, {HostTCPRR, IPv4, EBPF, NoOVS, "", 1.0102, 0}, {ServiceTCPCRR, IPv4, EBPF, EBPF, EndpointTCPCRR, 1.02, 0},
	}}

	want := `bench: move the baseline

A new check.

Measured at abc1234, Linux 6.12.1.
host_udp_rr ipv4, ebpf / no-ovs: 1.0404, was 1.0200 (+2.00 %)
service_tcp_crr ipv4, ebpf / ebpf in endpoint_tcp_crr: 1.0200, new
host_icmp ipv4, ebpf / no-ovs: gone, was 1.5000
`
	if diff := cmp.Diff(want, b.Message(old)); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestBaselineRoundTrip(t *testing.T) {
	b := accepted(t)

	text, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}

	got, err := DecodeBaseline(text)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(b, got); diff != "" {
		t.Errorf("baseline (-wrote +read):\n%s", diff)
	}

	for _, bad := range []string{"", "{}", `{"ratios":[]}`} {
		if _, err := DecodeBaseline([]byte(bad)); err == nil {
			t.Errorf("decoded %q", bad)
		}
	}
}

func TestSuspects(t *testing.T) {
	b := accepted(t)
	for _, tt := range []struct {
		name string
		rows []Row
		b    *Baseline
		want []string
	}{
		{"none", full(), b, nil},
		{"a bar", slower(EBPF, NSUDPRR, IPv4, 0.01), nil, []string{Helper, Masquerade, EBPF}},
		{"a ratio", slower(ShortcutsBridged, HostICMP, IPv4, 0.03), b, []string{NoOVS, ShortcutsBridged}},
	} {
		if diff := cmp.Diff(tt.want, Suspects(tt.rows, Bars(), tt.b), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Rows of the later run are taken even if they are slower, and rows without a like are added.
func TestReplace(t *testing.T) {
	a, b, c := row(EBPF, HostUDPRR, IPv4, 100), row(EBPF, HostICMP, IPv4, 200), row(NoOVS, HostICMP, IPv4, 50)

	a2, b2, d := row(EBPF, HostUDPRR, IPv4, 90), row(EBPF, HostICMP, IPv4, 210), row(EBPF, HostICMP, IPv6, 1)
	if diff := cmp.Diff([]Row{a2, b2, c, d}, Replace([]Row{a, b, c}, []Row{b2, a2, d})); diff != "" {
		t.Errorf("replaced (-want +got):\n%s", diff)
	}
}
