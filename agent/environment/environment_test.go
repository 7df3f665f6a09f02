package environment

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rig is a Watch whose Events are collected. Each look is one interval after the previous one.
type rig struct {
	*Watch
	events []string
	refuse error // of the API server
	clock  time.Time
}

func (r *rig) look(ctx context.Context) error {
	r.clock = r.clock.Add(interval)
	r.runChecks(ctx)

	return r.report(ctx)
}

func newRig(o Options) *rig {
	r := &rig{clock: time.Now()}
	o.Log = slog.New(slog.DiscardHandler)

	o.Warn = func(_ context.Context, reason, message string) error {
		if r.refuse == nil {
			r.events = append(r.events, reason+": "+message)
		}

		return r.refuse
	}
	if o.KubeProxy == "" {
		o.KubeProxy = "http://127.0.0.1:1/proxyMode" // nothing listens
	}

	r.Watch = New(o)
	r.now = func() time.Time { return r.clock }

	return r
}

// find returns the text of the only fault after a look, and "" without faults.
func (r *rig) find(t *testing.T) string {
	t.Helper()

	if err := r.look(t.Context()); err != nil {
		t.Errorf("look: %v", err)
	}

	switch f := r.Faults(); len(f) {
	case 0:
		return ""
	case 1:
		return f[0].Reason + ": " + f[0].Text
	default:
		t.Fatalf("faults %v, want at most one", f)
		return ""
	}
}

// wants checks that got names all parts, or that it is empty if there are none.
func wants(t *testing.T, got string, parts ...string) {
	t.Helper()

	if len(parts) == 0 && got != "" {
		t.Errorf("fault %q, want none", got)
	}

	for _, p := range parts {
		if !strings.Contains(got, p) {
			t.Errorf("fault %q, want one with %q", got, p)
		}
	}
}

func TestKubeProxy(t *testing.T) {
	for _, test := range []struct {
		name   string
		code   int
		answer string
		want   []string
	}{
		{"iptables", http.StatusOK, "iptables", []string{KubeProxyRuns, "mode iptables", "delete daemonset"}},
		{"nftables", http.StatusOK, "nftables\n", []string{"mode nftables"}},
		{"another program", http.StatusOK, "hello", nil},
		{"another path", http.StatusNotFound, "iptables", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.code)
				_, _ = io.WriteString(w, test.answer)
			}))
			defer server.Close()

			wants(t, newRig(Options{KubeProxy: server.URL}).find(t), test.want...)
		})
	}

	wants(t, newRig(Options{}).find(t))
}

func TestClock(t *testing.T) {
	for _, test := range []struct {
		name   string
		theirs time.Duration // after our time
		want   []string
	}{
		{"same", 0, nil},
		{"four minutes", 4 * time.Minute, nil},
		{"an hour behind", time.Hour, []string{ClockDiffers, "behind the API server's"}},
		{"an hour ahead", -time.Hour, []string{"ahead of the API server's", "chrony"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/version" {
					t.Errorf("path %s", r.URL.Path)
				}

				w.Header().Set("Date", time.Now().Add(test.theirs).UTC().Format(http.TimeFormat))
			}))
			defer server.Close()

			wants(t, newRig(Options{Server: server.URL + "/", Client: server.Client()}).find(t), test.want...)
		})
	}

	wants(t, newRig(Options{Server: "http://127.0.0.1:1", Client: http.DefaultClient}).find(t))
}

// TestDisk fills a file system of its own.
func TestDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: it cannot mount")
	}

	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,nr_inodes=64"); err != nil {
		t.Fatalf("mount: %v", err)
	}

	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})

	r := newRig(Options{Dirs: []string{dir, filepath.Join(dir, "missing")}})
	wants(t, r.find(t))

	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, make([]byte, 4<<20-8192), 0o600); err != nil {
		t.Fatal(err)
	}

	wants(t, r.find(t), DiskFull, "no space left in "+dir+":")

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}

	wants(t, r.find(t))

	for i := range 64 { // all inodes
		if err := os.Symlink("x", filepath.Join(dir, "l"+string(rune('0'+i)))); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}

			break
		}
	}

	wants(t, r.find(t), DiskFull)
}

// TestEvents checks that a fault has one Event each time it begins, and that a refused Event is
// written again.
func TestEvents(t *testing.T) {
	mode := ""

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, mode) }))
	defer server.Close()

	r := newRig(Options{KubeProxy: server.URL})
	for _, step := range []struct {
		mode   string
		refuse error
		events int
	}{
		{"", nil, 0},
		{"ipvs", errors.New("no"), 0},
		{"ipvs", nil, 1},
		{"ipvs", nil, 1},
		{"", nil, 1},
		{"ipvs", nil, 2},
		{"", nil, 2},
		{"", nil, 2},
		{"ipvs", errors.New("no"), 2},
		{"", nil, 3}, // the fault has ended meanwhile
	} {
		mode, r.refuse = step.mode, step.refuse
		if err := r.look(t.Context()); (err != nil) != (step.refuse != nil) {
			t.Errorf("%+v: error %v", step, err)
		}

		if len(r.events) != step.events {
			t.Errorf("%+v: events %q", step, r.events)
		}
	}
}

func TestCgroup(t *testing.T) {
	var err error

	r := newRig(Options{Cgroup: func() error { return err }})
	wants(t, r.find(t))

	err = errors.New("find cgroup2 mount: none")

	wants(t, r.find(t), NoCgroup2+": find cgroup2 mount: none", "--cgroup-path")
}

func TestSwitchAborts(t *testing.T) {
	var (
		aborts bool
		err    error
	)

	r := newRig(Options{SwitchAborts: func(context.Context) (bool, error) { return aborts, err }})
	wants(t, r.find(t))

	aborts = true

	wants(t, r.find(t), SwitchAborts+": Open vSwitch before 3.3", "; use the kernel's datapath or Open vSwitch 3.3")

	err = errors.New("dial ovs-vswitchd: connection refused")

	wants(t, r.find(t))
}

// TestNotReady checks that a node that is not ready for two looks in a row has one Event with what
// is missing, and no line of its own in readiness.
func TestNotReady(t *testing.T) {
	var missing []string

	r := newRig(Options{Missing: func() []string { return missing }})

	for _, step := range []struct {
		missing []string
		events  int
	}{
		{nil, 0},
		{[]string{"uplink eth0: no such device"}, 0}, // a start
		{nil, 0},
		{[]string{"a"}, 0},
		{[]string{"a", "b"}, 1},
		{[]string{"b"}, 1},
		{nil, 1},
		{[]string{strings.Repeat("x", 2000)}, 1},
		{[]string{strings.Repeat("x", 2000)}, 2},
	} {
		missing = step.missing

		if err := r.look(t.Context()); err != nil {
			t.Fatal(err)
		}

		if faults := r.Faults(); len(faults) > 0 {
			t.Errorf("%q: faults %v", step.missing, faults)
		}

		if len(r.events) != step.events {
			t.Errorf("%q: events %q, want %d", step.missing, r.events, step.events)
		}
	}

	for i, want := range []string{NotReady + ": a; b; ovnkube status", NotReady + ": xxx"} {
		if len(r.events) <= i || !strings.HasPrefix(r.events[i], want) || len(r.events[i]) > 1024 {
			t.Errorf("event %d of %q, want %q…", i, r.events, want)
		}
	}
}

// TestAddedChecks checks that a part's check runs at once, that other checks wait for their
// interval, and that a fault that comes and goes does not flood the API server with Events.
func TestAddedChecks(t *testing.T) {
	var fault *Fault

	asked := 0
	r := newRig(Options{Missing: func() []string { asked++; return nil }})
	r.Add(func(context.Context) *Fault { return fault })

	for i, step := range []struct {
		text   string
		after  time.Duration
		events int
	}{
		{"", 0, 0},
		{"a", time.Second, 1},
		{"a", time.Second, 1},
		{"", time.Second, 1},
		{"b", time.Second, 1}, // too soon
		{"b", eventGap, 2},
		{"", time.Second, 2},
	} {
		r.clock = r.clock.Add(step.after)
		if fault = nil; step.text != "" {
			fault = &Fault{GatewayAddressGone, step.text}
		}

		r.runChecks(t.Context())

		if err := r.report(t.Context()); err != nil {
			t.Fatal(err)
		}

		got := ""
		for _, f := range r.Faults() {
			got += f.Text
		}

		if got != step.text || len(r.events) != step.events {
			t.Errorf("step %d: faults %q, events %q; want %q and %d", i, got, r.events, step.text, step.events)
		}
	}

	if asked != 2 {
		t.Errorf("the environment was looked at %d times, want 2", asked)
	}
}
