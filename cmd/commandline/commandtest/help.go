package commandtest

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline"
)

// Maximum number of lines of help, of the root and of a command.
const (
	maxRootLines    = 40
	maxCommandLines = 60
)

// Print returns the output of a command line, which must succeed.
func Print(t *testing.T, root *cobra.Command, args ...string) string {
	t.Helper()

	var stdout, stderr bytes.Buffer

	err := commandline.Run(context.Background(), root, args, &stdout, &stderr)
	if code := commandline.Status(root.Name(), err, &stderr); code != 0 || stderr.Len() > 0 {
		t.Errorf("%q: exit status %d: %s", args, code, stderr.String())
	}

	return stdout.String()
}

// Each calls do for every command below c, with its words, except those added by cobra.
func Each(c *cobra.Command, do func(c *cobra.Command, words []string)) {
	for _, k := range c.Commands() {
		if k.Name() != "help" && k.Name() != "completion" {
			do(k, strings.Fields(k.CommandPath())[1:])
			Each(k, do)
		}
	}
}

// Help checks that the help of every command is short and explains the command, for each way to
// request it, and that the parent command lists each command that is not hidden.
func Help(t *testing.T, root func() *cobra.Command) {
	t.Helper()

	printShort := func(maxLines int, args ...string) string {
		text := Print(t, root(), args...)
		if n := strings.Count(text, "\n"); n > maxLines || n < 3 {
			t.Errorf("%q prints %d lines, want 3 to %d", args, n, maxLines)
		}

		return text
	}

	rootHelp := printShort(maxRootLines)
	for _, args := range [][]string{{"help"}, {"--help"}, {"-h"}, {"-help"}} {
		if text := printShort(maxRootLines, args...); text != rootHelp {
			t.Errorf("%q prints other help than no argument:\n%s", args, text)
		}
	}

	name := root().Name()
	Each(root(), func(c *cobra.Command, words []string) {
		if c.IsAdditionalHelpTopicCommand() || c.DisableFlagParsing {
			return
		}

		text := printShort(maxCommandLines, append([]string{"help"}, words...)...)

		for _, last := range []string{"--help", "-h", "help"} {
			args := slices.Concat(words, []string{last})
			if got := Print(t, root(), args...); got != text {
				t.Errorf("%q prints other help than 'help %s'", args, strings.Join(words, " "))
			}
		}

		if !strings.HasPrefix(text, c.Short) ||
			!strings.Contains(text, "Usage:\n  "+name+" "+strings.Join(words, " ")) {
			t.Errorf("%q: help does not explain the command:\n%s", words, text)
		}

		parentHelp := Print(t, root(), append([]string{"help"}, words[:len(words)-1]...)...)

		line := regexp.MustCompile(`(?m)^  ` + regexp.QuoteMeta(c.Name()) + ` +` + regexp.QuoteMeta(c.Short) + `$`)

		isListed := line.MatchString(parentHelp)
		if isListed == c.Hidden {
			t.Errorf("%q listed: %t, hidden: %t", words, isListed, c.Hidden)
		}
	})
}

// Mistake returns the error line of a command line with a mistake.
func Mistake(t *testing.T, root *cobra.Command, args ...string) string {
	t.Helper()

	var stdout, stderr bytes.Buffer

	err := commandline.Run(context.Background(), root, args, &stdout, &stderr)

	code := commandline.Status(root.Name(), err, &stderr)
	if code != 1 || stdout.Len() > 0 {
		t.Errorf("%q: exit status %d, printed %q", args, code, stdout.String())
	}

	return stderr.String()
}
