package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

// serve starts a server on loopback, port 17011, until the test ends. It runs in the host's own
// namespace: all fixed ports are below the ephemeral range (ip_local_port_range), which other
// tests' connections use.
func serve(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()

	done := make(chan error)
	go func() {
		done <- run(ctx, []string{"serve", "-tcp", "127.0.0.1:17011,[::1]:17011", "-udp", ":17011", "-name", "me"}, w)
	}()

	ready := make([]byte, 6)
	if _, err := io.ReadFull(r, ready); err != nil || string(ready) != "ready\n" {
		t.Fatalf("server says %q: %v", ready, err)
	}

	t.Cleanup(func() {
		cancel()

		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestClients(t *testing.T) {
	serve(t)

	ask := func(args ...string) string {
		t.Helper()

		var out bytes.Buffer
		if err := run(t.Context(), args, &out); err != nil {
			t.Fatalf("%v: %v", args, err)
		}

		return strings.TrimSpace(out.String())
	}

	for _, to := range []struct{ addr, want string }{
		{"127.0.0.1:17011", "me 127.0.0.1:17012"}, {"[::1]:17011", "me [::1]:17012"},
	} {
		for _, proto := range []string{"tcp", "udp", "frags"} {
			if got := ask(proto, to.addr, "-sport", "17012"); got != to.want {
				t.Errorf("%s %s: %q, want %q", proto, to.addr, got, to.want)
			}
		}
	}

	if got := ask("udp", "[::1]:17011", "-dstopts", "-sport", "17012"); got != "me [::1]:17012" {
		t.Errorf("udp with destination options: %q", got)
	}

	if got := ask("later", "127.0.0.1:17011", "-duration", "10ms"); !strings.HasPrefix(got, "me ") {
		t.Errorf("later: %q", got)
	}

	if got := ask("pull", "127.0.0.1:17011"); got != "1048576" {
		t.Errorf("pull: %q bytes", got)
	}

	var first AwaitReport
	if err := json.Unmarshal([]byte(ask("await", "127.0.0.1:17011", "-sport", "17012")), &first); err != nil {
		t.Fatal(err)
	}

	if first.Answer != "me 127.0.0.1:17012" || first.Sent != 0 || first.Connects != 1 || first.At.IsZero() {
		t.Errorf("await: %+v", first)
	}
	// UDP replies come from the address of the request.
	if got := ask("udp", "127.9.9.9:17011"); !strings.HasPrefix(got, "me 127.0.0.1:") {
		t.Errorf("udp to another address of the host: %q", got)
	}

	for _, udp := range []string{"-udp=false", "-udp=true"} {
		var r HoldReport
		if err := json.Unmarshal([]byte(ask("hold", "127.0.0.1:17011", "-duration", "50ms", "-interval", "1ms", udp)), &r); err != nil {
			t.Fatal(err)
		}

		if r.Sent == 0 || r.Lost != 0 || r.Received != r.Sent || r.Last.IsZero() || !r.Unanswered.IsZero() {
			t.Errorf("hold %s: %+v, want all answered", udp, r)
		}
	}

	var unserved HoldReport
	if err := json.Unmarshal([]byte(ask("hold", "127.0.0.1:17099", "-duration", "50ms", "-interval", "1ms", "-timeout", "50ms", "-udp")), &unserved); err != nil {
		t.Fatal(err)
	}

	if unserved.Lost == 0 || unserved.Lost != unserved.Sent || !unserved.Last.IsZero() || unserved.Unanswered.IsZero() {
		t.Errorf("hold without a server: %+v, want none answered", unserved)
	}

	var s StreamReport
	if err := json.Unmarshal([]byte(ask("stream", "127.0.0.1:17011", "-duration", "20ms")), &s); err != nil {
		t.Fatal(err)
	}

	if s.Bytes == 0 {
		t.Errorf("stream: %+v, want bytes", s)
	}

	var w SweepReport
	if err := json.Unmarshal([]byte(ask("sweep", "127.0.0.1", "-sport", "17013", "-ports", "17010-17012")), &w); err != nil {
		t.Fatal(err)
	}

	if want := (SweepReport{Attempts: 3, Connected: 1, Refused: 2}); w != want {
		t.Errorf("sweep: %+v, want %+v", w, want)
	}
}

func TestMistakes(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"dance"},
		{"tcp"},
		{"tcp", "a:1", "b:2"},
		{"sweep", "::1", "-ports", "9-1"},
		{"sweep", "::1", "-ports", "70000"},
		{"tcp", "::1", "-sport", "1"},
	} {
		if err := run(t.Context(), args, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want a usage error", args, err)
		}
	}

	if err := run(t.Context(), []string{"tcp", "127.0.0.1:1"}, io.Discard); err == nil || errors.Is(err, errUsage) {
		t.Errorf("closed port: %v, want refused", err)
	}
}
