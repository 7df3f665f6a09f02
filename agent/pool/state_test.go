package pool_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/pool"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// stateOf returns a state with valid texts.
func stateOf(t testing.TB, ports []annotation.PoolPort, released map[int]time.Time) pool.State {
	t.Helper()

	text, err := annotation.FormatPoolPorts(ports)
	if err != nil {
		t.Fatal(err)
	}

	return pool.State{
		Node:     annotation.FormatPool(annotation.Pool{Cluster: "k8s", Node: "vm1"}),
		Ports:    text,
		Released: released,
	}
}

func sameState(a, b pool.State) bool {
	return a.Node == b.Node && a.Ports == b.Ports && maps.EqualFunc(a.Released, b.Released, time.Time.Equal)
}

func TestState_roundTrip(t *testing.T) {
	for name, want := range map[string]pool.State{
		"empty":       {},
		"full":        stateOf(t, portsOf(2, 3), map[int]time.Time{2: epoch, 4094: epoch.Add(1)}),
		"with a zone": stateOf(t, nil, map[int]time.Time{1: epoch.In(time.FixedZone("", 5400))}),
	} {
		text, err := pool.EncodeState(want)
		if err != nil {
			t.Fatal(err)
		}

		if got, err := pool.DecodeState(text); err != nil || !sameState(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
	}
}

func TestEncodeState_refusesTimesThatCannotBeRead(t *testing.T) {
	s := pool.State{Released: map[int]time.Time{2: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}}

	text, err := pool.EncodeState(s)
	if err == nil || !strings.HasPrefix(err.Error(), "encode state of pool: ") {
		t.Errorf("got %s, %v", text, err)
	}
}

func TestDecodeState_errorsNameTheField(t *testing.T) {
	valid, err := pool.EncodeState(stateOf(t, portsOf(2, 3), map[int]time.Time{2: epoch}))
	if err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct{ old, new, want string }{
		{"}\n", "", "decode state of pool: unexpected end of JSON input"},
		{`\"vm1\"`, `\"\"`, "decode state of pool: parse node: node: empty"},
		{`\n3 `, `\n4095 `, "decode state of pool: parse ports: line 2: tag:"},
		{`{"2":`, `{"0":`, "decode state of pool: released: 0 is not a tag"},
		{`{"2":`, `{"4095":`, "decode state of pool: released: 4095 is not a tag"},
		{"2026-11-28T", "yesterday ", "decode state of pool: parsing time"},
	} {
		text := strings.Replace(string(valid), tt.old, tt.new, 1)
		if text == string(valid) {
			t.Fatalf("%s is not in %s", tt.old, valid)
		}

		if _, err := pool.DecodeState([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s for %s: got %v, want %q", tt.new, tt.old, err, tt.want)
		}
	}
}

// FuzzDecodeState decodes damaged files. A valid state is encoded again without loss, and makes a
// Pool that can be printed.
func FuzzDecodeState(f *testing.F) {
	text, err := pool.EncodeState(stateOf(f, portsOf(2, 3), map[int]time.Time{2: epoch}))
	if err != nil {
		f.Fatal(err)
	}

	f.Add(text)

	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := pool.DecodeState(text)
		if err != nil {
			return
		}

		again, err := pool.EncodeState(s)
		if err != nil {
			t.Fatal(err)
		}

		if got, err := pool.DecodeState(again); err != nil || !sameState(got, s) {
			t.Errorf("%q: %+v, then %+v, %v", text, s, got, err)
		}

		ports, err := annotation.ParsePoolPorts(s.Ports)
		if err != nil {
			t.Fatal(err)
		}

		p := pool.New("vm1", rest)
		p.Restore(nil, s.Released, epoch)
		p.SetPorts(ports)

		var out bytes.Buffer

		err = pool.Table(&out, "vm1", p.Ports(epoch))
		if lines := bytes.Count(out.Bytes(), []byte("\n")); err != nil || lines != len(ports)+2 {
			t.Errorf("table %s, %v; want a line for each of %d ports", out.String(), err, len(ports))
		}
	})
}
