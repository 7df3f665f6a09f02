package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Most lines that help prints.
const (
	rootLines = 40
	mostLines = 60
)

// help returns what a command line prints, which must be no error.
func help(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err := run(context.Background(), args, &stdout, &stderr)
	if code := exitCode(err, &stderr); code != 0 || stderr.Len() > 0 {
		t.Errorf("%q: exit status %d: %s", args, code, stderr.String())
	}
	return stdout.String()
}

// everyCommand calls do for every command with its words.
func everyCommand(c *command, path []string, do func(*command, []string)) {
	for _, child := range c.children {
		words := slices.Concat(path, []string{child.name})
		do(child, words)
		everyCommand(child, words, do)
	}
}

// TestHelpIsShort: a newcomer is not met by a wall of text, whichever way help is asked for, and
// every command says what it does and is listed by the command above it.
func TestHelpIsShort(t *testing.T) {
	short := func(most int, args ...string) string {
		text := help(t, args...)
		if n := strings.Count(text, "\n"); n > most || n < 3 {
			t.Errorf("%q prints %d lines, want 3 to %d", args, n, most)
		}
		return text
	}
	root0 := short(rootLines)
	for _, args := range [][]string{{"help"}, {"--help"}, {"-h"}} {
		if text := short(rootLines, args...); text != root0 {
			t.Errorf("%q prints other help than no argument:\n%s", args, text)
		}
	}
	everyCommand(root(), nil, func(c *command, words []string) {
		text := short(mostLines, append([]string{"help"}, words...)...)
		for _, args := range [][]string{slices.Concat(words, []string{"--help"}), slices.Concat(words, []string{"help"})} {
			if got := help(t, args...); got != text {
				t.Errorf("%q prints other help than 'help %s'", args, strings.Join(words, " "))
			}
		}
		above := help(t, append([]string{"help"}, words[:len(words)-1]...)...)
		listed := regexp.MustCompile(`(?m)^  ` + regexp.QuoteMeta(c.name) + ` +` + regexp.QuoteMeta(c.summary) + `$`).MatchString(above)
		if listed == c.hidden {
			t.Errorf("%q listed: %t, hidden: %t", words, listed, c.hidden)
		}
	})
	var stderr bytes.Buffer
	if code := exitCode(run(context.Background(), []string{"help", "gateway", "nonsense"}, io.Discard, &stderr), &stderr); code != 1 || !strings.Contains(stderr.String(), "see 'ovnkube gateway --help'") {
		t.Errorf("help on no command: %d, %s", code, stderr.String())
	}
}

// TestEveryFlagIsDocumented: what help leaves out of a command's flags is in help on settings, other
// spellings included.
func TestEveryFlagIsDocumented(t *testing.T) {
	settings, classic := help(t, "help", "settings"), help(t, "help", "second-generation")
	checked := 0
	check := func(c *command, text string) {
		if c.setup == nil {
			return
		}
		flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
		c.setup(flags)
		flags.VisitAll(func(f *flag.Flag) {
			checked++
			name := regexp.MustCompile(`(?m)(^  -|^--|also .*--|^  --)` + regexp.QuoteMeta(f.Name) + `\b`)
			if !name.MatchString(text) && !name.MatchString(settings) {
				t.Errorf("%s: -%s is neither in its help nor in that on settings", c.name, f.Name)
			}
		})
	}
	check(root(), classic)
	everyCommand(root(), nil, func(c *command, words []string) { check(c, help(t, append([]string{"help"}, words...)...)) })
	if checked < 500 {
		t.Errorf("%d flags", checked)
	}
}

// TestHelpSettings: words choose settings, by name, text or role.
func TestHelpSettings(t *testing.T) {
	all := help(t, "help", "settings")
	for _, tt := range []struct {
		words     []string
		has, lack string
	}{
		{nil, "--k8s-kubeconfig", "nonsense"},
		{nil, "--conntrack-zone: ", "nonsense"},
		{[]string{"MTU"}, "--mtu ", "--nb-address"},
		{[]string{"agent"}, "--gateway-layout", "--election"},
		{[]string{"controller"}, "--nb-address", "--gateway-layout"},
		{[]string{"gateway", "vlan"}, "--gateway-vlanid", "--gateway-layout"},
	} {
		text := help(t, append([]string{"help", "settings"}, tt.words...)...)
		if !strings.Contains(text, "\n"+tt.has) && !strings.Contains(text, tt.has) || strings.Contains(text, "\n"+tt.lack) {
			t.Errorf("%q: want %q and no %q in\n%s", tt.words, tt.has, tt.lack, text)
		}
		if len(tt.words) > 0 && len(text) >= len(all) {
			t.Errorf("%q leaves nothing out", tt.words)
		}
	}
}
