package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

func TestMain(m *testing.M) { os.Exit(tether.Main(m)) }

func TestRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}

	const name = "e2e-n1"
	if err := netns.Create(name); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		args, line string
		left       bool
	}{
		{"-n", "would remove netns " + name + "\n", true},
		{"", "removed netns " + name + "\n", false},
		{"", "", false},
	} {
		var stdout, stderr bytes.Buffer
		if err := run(strings.Fields(c.args), &stdout, &stderr); err != nil {
			t.Errorf("%q: %v", c.args, err)
		}

		if !strings.Contains(stdout.String(), c.line) || c.line == "" && strings.Contains(stdout.String(), "netns") || stderr.Len() > 0 {
			t.Errorf("%q: output %q, errors %q, want %q", c.args, stdout.String(), stderr.String(), c.line)
		}

		_, err := os.Stat(netns.Path(name))
		if left := err == nil; left != c.left {
			t.Errorf("%q: namespace is left: %v, want %v", c.args, left, c.left)
		}
	}
}

func TestUsage(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if err := run([]string{"--help"}, &stdout, &stderr); !errors.Is(err, flag.ErrHelp) || !strings.Contains(stderr.String(), "only list") {
		t.Errorf("--help: %v, %s", err, stderr.String())
	}

	if err := run([]string{"all"}, &stdout, &stderr); err == nil || !strings.Contains(err.Error(), `unexpected argument "all"`) {
		t.Errorf("an argument: %v", err)
	}
}
