package cniconf

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAnnouncer_withdrawsWhenUnready(t *testing.T) {
	a := Announcer{Dir: t.TempDir(), Socket: "/run/x/cni.sock", Log: slog.New(slog.DiscardHandler)}

	path := filepath.Join(a.Dir, File)
	if err := os.WriteFile(path, []byte("of an earlier agent"), 0o644); err != nil {
		t.Fatal(err)
	}

	unready := []string{"something"}

	now := time.Now()
	for i, step := range []struct {
		missing []string
		later   time.Duration
		want    string // part of the file; "" if there is none
	}{
		{unready, 0, "earlier"},
		{unready, withdrawAfter - time.Second, "earlier"},
		{unready, time.Second, ""},
		{nil, time.Second, Plugin},
		{unready, time.Hour, Plugin}, // the node is known to be unready from here on
		{unready, withdrawAfter / 2, Plugin},
		{nil, 0, Plugin},
		{unready, withdrawAfter, Plugin},
		{unready, withdrawAfter, ""},
		{unready, withdrawAfter, ""},
		{nil, 0, Plugin},
	} {
		now = now.Add(step.later)
		if err := a.Step(step.missing, now); err != nil {
			t.Fatal(err)
		}

		content, err := os.ReadFile(path)
		if (err != nil) != (step.want == "") || !strings.Contains(string(content), step.want) {
			t.Errorf("step %d: %q, error %v", i, content, err)
		}
	}
}

// With --cni-exclusive, the configurations of other networks are set aside once the node is ready,
// and again whenever they are rewritten. Remove puts them back.
func TestAnnouncer_exclusive(t *testing.T) {
	for _, exclusive := range []bool{true, false} {
		a := Announcer{Dir: t.TempDir(), Socket: "/run/nosuch.sock", Exclusive: exclusive, Log: slog.New(slog.DiscardHandler)}
		other := filepath.Join(a.Dir, "10-flannel.conflist")
		step := func(missing ...string) (exists bool) {
			t.Helper()

			if err := os.WriteFile(other, []byte(flannel), 0o644); err != nil {
				t.Fatal(err)
			}

			if err := a.Step(missing, time.Now()); err != nil {
				t.Fatal(err)
			}

			_, err := os.Stat(other)

			return err == nil
		}

		if !step("something") {
			t.Errorf("exclusive %t: set aside before the node is ready", exclusive)
		}

		for range 2 {
			if exists := step(); exists == exclusive {
				t.Errorf("exclusive %t: the other configuration exists: %t", exclusive, exists)
			}
		}

		if err := Remove(a.Dir); err != nil {
			t.Error(err)
		}

		if b, err := os.ReadFile(other); err != nil || string(b) != flannel {
			t.Errorf("exclusive %t: after Remove %q, %v", exclusive, b, err)
		}

		if _, err := os.Stat(filepath.Join(a.Dir, File)); err == nil {
			t.Errorf("exclusive %t: after Remove our configuration exists", exclusive)
		}
	}
}

// A directory that does not exist is created. Two agents write the same file.
func TestAnnouncer_writes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "net.d")
	for range 2 {
		a := Announcer{Dir: dir, Socket: "/run/x/cni.sock", Log: slog.New(slog.DiscardHandler)}
		if err := a.Step(nil, time.Now()); err != nil {
			t.Fatal(err)
		}
	}

	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != File {
		t.Fatalf("entries %v, error %v", entries, err)
	}

	b, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil || !json.Valid(b) || !bytes.Contains(b, []byte(`"serverSocket": "/run/x/cni.sock"`)) {
		t.Errorf("%s, error %v", b, err)
	}

	none := Announcer{Log: slog.New(slog.DiscardHandler)}
	if err := none.Step(nil, time.Now()); err != nil {
		t.Errorf("without a directory: %v", err)
	}
}
