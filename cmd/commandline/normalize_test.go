package commandline

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestNormalize(t *testing.T) {
	tree := func() *cobra.Command {
		root := &cobra.Command{Use: "p", Run: func(*cobra.Command, []string) {}}
		root.Flags().String("name", "", "")

		run := &cobra.Command{Use: "run", Run: func(*cobra.Command, []string) {}}
		run.Flags().Bool("fast", false, "")
		run.Flags().Int("n", 0, "")
		run.Flags().String("verbose", "", "")
		run.Flags().Lookup("verbose").NoOptDefVal = "true"
		exec := &cobra.Command{Use: "exec", Run: func(*cobra.Command, []string) {}}
		exec.Flags().String("dir", "", "")
		StopAtArgument(exec)

		raw := &cobra.Command{Use: "raw", DisableFlagParsing: true, Run: func(*cobra.Command, []string) {}}
		root.AddCommand(run, exec, raw)

		return root
	}
	for typed, want := range map[string]string{
		"":                                 "",
		"-name=x":                          "--name=x",
		"-name x":                          "--name=x",
		"--name -x":                        "--name=-x",
		"--name":                           "--name",
		"-name run":                        "--name=run",
		"run -fast -n 3 a":                 "run --fast --n=3 a",
		"run a -fast":                      "run a --fast",
		"run - -n=3":                       "run - --n=3",
		"run -- -fast":                     "run -- -fast",
		"run -v":                           "run --verbose",
		"run -vfile:info -verbose":         "run --verbose=file:info --verbose",
		"run -h":                           "run --help",
		"run -help":                        "run --help",
		"run -fsat":                        "run --fsat",
		"run help":                         "help run",
		"help run":                         "help run",
		"exec -dir /d node1 ip -4 address": "exec --dir=/d node1 ip -4 address",
		"raw -x -v help":                   "raw -x -v help",
		"__complete run -f":                "__complete run -f",
	} {
		if got := Normalize(tree(), strings.Fields(typed)); !slices.Equal(got, strings.Fields(want)) || got == nil {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}
