package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/page"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// With OpenFlow, the counters come from the agent, or from the switch if the agent does not answer.
// Package agent tests that both do.
func TestCountersOfFlows(t *testing.T) {
	p := page.New(func() []string { return nil })
	mux := http.NewServeMux()
	p.Register(mux, func(h http.Handler) http.Handler { return h })

	server := httptest.NewServer(mux)
	defer server.Close()

	dir := t.TempDir()

	record := status.Record{
		Wiring: status.Wiring{Layout: "bridged", Backend: "openflow", Bridge: "brnosuch0"},
		Paths:  status.Paths{PinDir: dir, OVSRunDir: dir, Metrics: strings.TrimPrefix(server.URL, "http://")},
	}
	if err := status.Write(dir, record); err != nil {
		t.Fatal(err)
	}

	look := func(args ...string) (stdout, stderr string, err error) {
		var out, errs bytes.Buffer

		err = run(t.Context(), append([]string{"gateway", "counters", "-run-dir", dir}, args...), &out, &errs)

		return out.String(), errs.String(), err
	}
	if _, said, err := look(); err == nil || !strings.Contains(said, "it is starting") || !strings.Contains(err.Error(), "brnosuch0") {
		t.Errorf("an agent that is starting, and no switch: %v, %s", err, said)
	}

	p.Set(page.Source{
		Stats: func() gateway.Stats { return gateway.Stats{} },
		Counters: func() ([]bpf.Counter, error) {
			c := gateway.FlowReasons()
			c[0].Packets, c[0].Bytes = 3, 180

			return c, nil
		},
	})

	out, said, err := look("-pin-dir", dir)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); err != nil || said != "" || len(lines) != 2 || !strings.Contains(lines[1], gateway.FlowReasons()[0].Reason) {
		t.Errorf("%s%s%v", out, said, err)
	}

	out, _, err = look("-all", "-json")

	var got []bpf.Counter

	want := gateway.FlowReasons()
	want[0].Packets, want[0].Bytes = 3, 180

	if err != nil || json.Unmarshal([]byte(out), &got) != nil {
		t.Fatalf("%v: %s", err, out)
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	if _, _, err := look("-pin-dir", t.TempDir()); err == nil || !strings.Contains(err.Error(), "open gateway counters") {
		t.Errorf("another agent's pins: %v", err)
	}
}
