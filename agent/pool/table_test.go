package pool_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/pool"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

// TestTable_goldens prints pools as `ovnkube underlay pool` does: from claims and a state file.
func TestTable_goldens(t *testing.T) {
	repaired, held := port(3), port(5)
	repaired.ID, repaired.Held, held.Held = port(77).ID, true, true
	oneFamily := port(6)
	oneFamily.Addresses = oneFamily.Addresses[:1]
	mixed := append(portsOf(2, 4, 7), repaired, held, oneFamily)
	released := map[int]time.Time{
		2: epoch.Add(-rest),
		6: epoch.Add(-rest + 1),
		7: epoch.Add(-18 * time.Second),
	}

	for _, tt := range []struct {
		name   string
		state  pool.State
		claims []pool.Claim
	}{
		{"empty", pool.State{}, nil},
		{"new", stateOf(t, portsOf(2, 3), nil), nil},
		{"mixed", stateOf(t, mixed, released), []pool.Claim{
			{Tag: 3, Owner: owner("held-under-a-pod"), Port: port(3)},
			{Tag: 4, Owner: owner("used"), Port: port(4)},
			{Tag: 4094, Owner: owner("missing"), Port: port(4094)},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ports, err := annotation.ParsePoolPorts(tt.state.Ports)
			if err != nil {
				t.Fatal(err)
			}

			p := pool.New("vm1", rest)
			p.Restore(tt.claims, tt.state.Released, epoch)
			p.SetPorts(ports)

			var got bytes.Buffer
			if err := pool.Table(&got, "vm1", p.Ports(epoch)); err != nil {
				t.Fatal(err)
			}

			compare(t, filepath.Join("testdata", tt.name+".txt"), got.Bytes())
		})
	}
}

func compare(t *testing.T, file string, got []byte) {
	t.Helper()

	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}

		return
	}

	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(got, want) {
		t.Errorf("%s (-update rewrites it): got\n%swant\n%s", file, got, want)
	}
}

// full accepts a number of bytes and then fails, as a full disk or a closed pipe does.
type full struct{ left int }

var errFull = errors.New("full")

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errFull
	}

	return len(b), nil
}

func TestTable_reportsFailedWrites(t *testing.T) {
	var all bytes.Buffer
	if err := pool.Table(&all, "vm1", nil); err != nil {
		t.Fatal(err)
	}

	for left := range all.Len() {
		if err := pool.Table(&full{left}, "vm1", nil); !errors.Is(err, errFull) {
			t.Errorf("writer with %d bytes left: %v, want %v", left, err, errFull)
		}
	}
}
