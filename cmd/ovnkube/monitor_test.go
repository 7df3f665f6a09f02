package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

func parseWatch(t *testing.T, args ...string) (bpf.MonitorOptions, error) {
	t.Helper()

	flags := flag.NewFlagSet("monitor", flag.ContinueOnError)

	w := newWatch(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}

	return w.options()
}

func TestMonitorFlags(t *testing.T) {
	o, err := parseWatch(t, "-address", "2001:db8::/32", "-port", "443", "-protocol", "icmp6", "-verdict", "drop,both", "-rate", "5")
	if err != nil {
		t.Fatal(err)
	}

	if o.Addrs.String() != "2001:db8::/32" || o.Port != 443 || o.Proto != 58 || o.Rate != 5 {
		t.Errorf("%+v", o)
	}

	var wanted []string

	for _, c := range bpf.Reasons() {
		if o.Want(c) {
			wanted = append(wanted, c.Verdict)
		}
	}

	if got := strings.Join(wanted, " "); strings.Contains(got, "host") || !strings.Contains(got, "drop") || !strings.Contains(got, "both") {
		t.Errorf("verdicts %s", got)
	}

	if o, err := parseWatch(t, "-address", "::ffff:192.0.2.1"); err != nil || o.Addrs.String() != "192.0.2.1/32" {
		t.Errorf("%v, %v", o.Addrs, err)
	}

	for want, args := range map[string][]string{
		"neither an address nor a prefix": {"-address", "example.org"},
		"-port 70000":                     {"-port", "70000"},
		"-rate 0":                         {"-rate", "0"},
		"protocol \"quic\"":               {"-protocol", "quic"},
		"-reason \"unheard\" is none":     {"-reason", "unheard"},
		"-verdict \"maybe\" is none":      {"-verdict", "maybe"},
		"never has -verdict":              {"-reason", "svc_leak", "-verdict", "host"},
	} {
		if _, err := parseWatch(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// Each output format has the verdict, the reason and the packet.
func TestMonitorPrints(t *testing.T) {
	dns, err := hex.DecodeString("020000000011020000000099" + "0800" + "4500001c00000000" + "40110000" + "c6336401" + "ac1e000b" + "0035c35000080000")
	if err != nil {
		t.Fatal(err)
	}

	sample := bpf.Sample{Counter: bpf.Counter{Direction: "rx", Verdict: "ovn", Reason: "snat_port"}, From: verdict.FromWire, Time: time.Unix(1700000000, 0), Len: len(dns), Frame: dns}
	for name, tt := range map[string]struct {
		w    watch
		want []string
	}{
		"lines": {watch{}, []string{"from wire  ovn   snat_port", "42  02:00", "198.51.100.1->172.30.0.11, UDP 53->50000"}},
		"JSON": {watch{json: true}, []string{
			`"from":"wire","direction":"rx","verdict":"ovn","reason":"snat_port","length":42,"sourceMAC":"02:00:00:00:00:99","destinationMAC":"02:00:00:00:00:11"`,
			`"protocol":"udp","source":"198.51.100.1","sourcePort":53,"destination":"172.30.0.11","destinationPort":50000}`,
		}},
		"pcap": {watch{pcap: "-"}, []string{"ovn: snat_port, from wire", string(dns)}},
	} {
		var out bytes.Buffer

		print, done, err := tt.w.printer(t.Context(), &out, newNames(agentInfo{errRecord: status.ErrNone}))
		if err != nil {
			t.Fatal(err)
		}

		if err := errors.Join(print(sample), done()); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		for _, want := range tt.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in %q", name, want, out.String())
			}
		}
	}
}

// Lines and captures contain the VLAN tag that reception removed.
func TestTagIsRestored(t *testing.T) {
	s := bpf.Sample{Len: 60, TPID: 0x8100, TCI: 100, Frame: []byte("ddddddssssssPPrest")}
	if got, length := tagged(s); string(got) != "ddddddssssss\x81\x00\x00dPPrest" || length != 64 {
		t.Errorf("%q, %d bytes", got, length)
	}
}
