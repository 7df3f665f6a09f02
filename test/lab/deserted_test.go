package lab_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// A lab whose processes were all killed is removed by Up; one with a single live process is not.
func TestDeserted(t *testing.T) {
	o := options(t)
	refused := func(what string) {
		t.Helper()

		if _, err := lab.Up(t.Context(), o); err == nil || !strings.Contains(err.Error(), "is up") {
			t.Fatalf("%s: %v", what, err)
		}
	}

	if !killedUp(t, o, "", "up returned") {
		t.Fatal("it ended by itself")
	}

	refused("its daemons live")

	l, err := lab.Open(o.Dir)
	if err != nil {
		t.Fatal(err)
	}

	last, err := l.Spawn("ext", "last", "sleep", "1h")
	if err != nil {
		t.Fatal(err)
	}

	records, err := filepath.Glob(filepath.Join(o.Dir, "pid", "*.pid"))
	if err != nil || len(records) < 5 {
		t.Fatal(records, err)
	}

	for _, record := range records {
		p, err := process.Load(record)
		if err != nil {
			t.Fatal(err)
		}

		if p.PID == last.PID {
			continue
		}

		if err := p.Stop(0); err != nil {
			t.Fatal(err)
		}
	}

	refused("one process lives")

	if err := last.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}

	if err := last.Stop(0); err != nil {
		t.Fatal(err)
	}

	var progress bytes.Buffer

	o.Progress = &progress

	again, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(progress.String(), "taking down the stale lab") {
		t.Errorf("it does not say what it removes:\n%s", progress.String())
	}

	refused("it is up again")
	mustExec(t, again, "node1", "ping", "-n", "-c", "1", "-W", "5", again.Node(2).IP4.String())
}
