package controlplane_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/controlplane"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

func options(api string, databases ...string) controlplane.Options {
	return controlplane.Options{
		API: &rest.Config{Host: api}, Databases: databases,
		Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, Log: slog.New(slog.DiscardHandler),
	}
}

// TestFinder_readsSettings: addresses in the settings are known at once, with the ports of their
// schemes.
func TestFinder_readsSettings(t *testing.T) {
	for _, tc := range []struct {
		api       string
		databases []string
		want      string // "error": refused
	}{
		{"https://192.0.2.5:6443", nil, "[192.0.2.5:6443]"},
		{"https://192.0.2.5", nil, "[192.0.2.5:443]"},
		{"http://192.0.2.5/path", nil, "[192.0.2.5:80]"},
		{"192.0.2.5:8443", nil, "[192.0.2.5:8443]"},
		{"https://[2001:db8::5]:6443", nil, "[[2001:db8::5]:6443]"},
		{"https://10.96.0.1:443", nil, "[]"}, // the Service default/kubernetes
		{"https://api.example:6443", nil, "[]"},
		{
			"https://192.0.2.5:6443",
			[]string{"unix:/run/db.sock", "ssl:192.0.2.7:6641", "tcp:[2001:db8::7]:6642"},
			"[192.0.2.5:6443 192.0.2.7:6641 [2001:db8::7]:6642]",
		},
		{"https://192.0.2.5:6443", []string{"tcp:192.0.2.7"}, "error"},
		{"https://192.0.2.5:port", nil, "error"},
	} {
		f, err := controlplane.New(options(tc.api, tc.databases...))
		switch {
		case err != nil && tc.want != "error":
			t.Errorf("%s %v: %v", tc.api, tc.databases, err)
		case err == nil && f.Found().String() != tc.want:
			t.Errorf("%s %v: found %s, want %s", tc.api, tc.databases, f.Found(), tc.want)
		}
	}
}

// TestFinder_followsNames: names are resolved at the start and every minute. After an error, the
// last answer stays.
func TestFinder_followsNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answer atomic.Pointer[[]netip.Addr]

		set := func(addrs ...string) {
			var out []netip.Addr
			for _, a := range addrs {
				out = append(out, netip.MustParseAddr(a))
			}

			answer.Store(&out)
		}
		o := options("https://api.example:6443", "ssl:192.0.2.7:6641")
		o.Resolve = func(_ context.Context, name string) ([]netip.Addr, error) {
			if a := answer.Load(); a != nil && name == "api.example" {
				return *a, nil
			}

			return nil, errors.New("no such host")
		}
		changes := 0
		o.Changed = func(was, now service.ControlPlane) {
			changes++

			if was.Equal(now) {
				t.Error("a change without a difference")
			}
		}

		f, err := controlplane.New(o)
		if err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())

		done := make(chan error)
		go func() { done <- f.Run(ctx) }()

		check := func(when, want string, wantChanges int) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			synctest.Wait()

			if got := f.Found().String(); got != want || changes != wantChanges {
				t.Errorf("%s: found %s after %d changes, want %s after %d", when, got, changes, want, wantChanges)
			}
		}
		check("the name is unknown", "[192.0.2.7:6641]", 0)
		set("192.0.2.5", "2001:db8::5", "10.96.0.1")
		check("two addresses", "[192.0.2.5:6443 192.0.2.7:6641 [2001:db8::5]:6443]", 1)
		answer.Store(nil)
		check("the resolver fails", "[192.0.2.5:6443 192.0.2.7:6641 [2001:db8::5]:6443]", 1)
		set("192.0.2.6")
		check("another address", "[192.0.2.6:6443 192.0.2.7:6641]", 2)
		cancel()

		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
