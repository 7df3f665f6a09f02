package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline/commandtest"
)

// help returns the output of a command line, which must succeed.
func help(t *testing.T, args ...string) string {
	t.Helper()
	return commandtest.Print(t, root(), args...)
}

// Help is short for each way to request it. Every command explains itself and is listed by its
// parent. The root lists no flags.
func TestHelpIsShort(t *testing.T) {
	commandtest.Help(t, root)

	if text := help(t); strings.Contains(text, "Flags:") {
		t.Errorf("the root's help has flags:\n%s", text)
	}

	for typed, want := range map[string]string{
		"help gateway nonsense": "see 'ovnkube gateway --help'", "gateway cuonters": "did you mean counters?", "agnet": "did you mean agent?",
	} {
		if got := commandtest.Mistake(t, root(), strings.Fields(typed)...); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", typed, got, want)
		}
	}
}

// Flags that a command's help omits are in the help on settings, including other spellings.
func TestEveryFlagIsDocumented(t *testing.T) {
	settings, classic := help(t, "help", "settings"), help(t, "help", "ovn-kubernetes")
	checked := 0
	check := func(c *cobra.Command, text string) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			checked++

			name := regexp.MustCompile(`(?m)(^ +--|^--|also .*--)` + regexp.QuoteMeta(f.Name) + `\b`)
			if !name.MatchString(text) && !name.MatchString(settings) {
				t.Errorf("%s: -%s is neither in its help nor in that on settings", c.Name(), f.Name)
			}
		})
	}
	check(root(), classic)
	commandtest.Each(root(), func(c *cobra.Command, words []string) { check(c, help(t, append([]string{"help"}, words...)...)) })

	if checked < 500 {
		t.Errorf("%d flags", checked)
	}
}

// Words select settings by name, text or role.
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
