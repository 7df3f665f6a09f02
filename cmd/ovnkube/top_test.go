package main

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/busy"
)

// The output shows who sends what to whom, and what is unknown.
func TestTopPicture(t *testing.T) {
	at := netip.MustParseAddrPort
	group := func(direction, port, verdict string, flows ...busy.RatedFlow) classShown {
		return classOf(busy.Group{Class: busy.Class{Direction: direction, Port: port, Verdict: verdict}, Rate: busy.Rate{Packets: 1234, Bytes: 1e6}, Flows: flows})
	}
	p := picture{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Seconds: 2,
		Classes: []classShown{
			group("rx", "ovn", "ovn",
				busy.RatedFlow{Flow: busy.Flow{Src: at("203.0.113.9:4242"), Dst: at("192.0.2.10:30080"), Type: 0x0800, Proto: 6, Reason: "service"}, Rate: busy.Rate{Packets: 9.96, Bytes: 999.6}},
				busy.RatedFlow{Flow: busy.Flow{Src: at("[2001:db8::1]:0"), Dst: at("[2001:db8::2]:0"), Type: 0x86dd, Proto: 89, Reason: "proto_ns"}, Rate: busy.Rate{Packets: 0.5, Bytes: 40}}),
			group("tx", "none", "drop", busy.RatedFlow{Flow: busy.Flow{Type: 0x88b5, Reason: "bad_mac"}}),
			group("tx", "host", "out"),
		},
		Services: []serviceShown{{"default/web:80/TCP", busy.Rate{Packets: 3, Bytes: 2e9}}},
		Missed:   7, Note: "Services are not known: why",
	}

	want := `03:04:05  2.0 s  3.7k packets/s  3.0 MB/s

from wire to OVN  1.2k packets/s  1.0 MB/s
     1.0 kB/s       10/s  tcp   203.0.113.9:4242 > 192.0.2.10:30080  service
       40 B/s      0.5/s  89    2001:db8::1 > 2001:db8::2  proto_ns

from ovn dropped  1.2k packets/s  1.0 MB/s
        0 B/s        0/s  0x88b5 - > -  bad_mac

from host to the wire  1.2k packets/s  1.0 MB/s

Services, at the uplink
     2.0 GB/s      3.0/s  default/web:80/TCP

7 packets are not in the sample: flows are estimated

Services are not known: why
`
	if diff := cmp.Diff(want, p.String()); diff != "" {
		t.Error(diff)
	}
}

func TestTopMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		"-interval of at least":          {"-interval", "1ms"},
		"-rows of at least":              {"-rows", "0"},
		"unexpected argument":            {"here"},
		"no gateway program is attached": {"-pin-dir", t.TempDir()},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), append([]string{"gateway", "top", "-once"}, args...), &out, &out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
