package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
)

func configCommands() *command {
	return &command{
		name: "config", group: groupLook, summary: "show and check the configuration",
		detail: `The value of a setting is taken from the first of these sources that has it: the flag, the
environment variable (OVNKUBE_CLUSTER_SUBNETS for --cluster-subnets), the configuration file,
external_ids of Open vSwitch, the default. docs/configuration.md lists all settings.`,
		children: []*command{
			{
				name:    "show",
				summary: "print every setting with its value and source",
				setup:   configShowCommand,
			},
			{
				name:      "check",
				summary:   "list all errors in a configuration file, with their lines",
				arguments: "[FILE]",
				setup:     configCheckCommand,
				detail: `If there are errors, the exit status is 1, and the controller or the agent would not start with this
file. Warnings report settings without effect or with a better name. The command also checks its
flags, but not the environment and external_ids.`,
			},
		},
	}
}

// shownSetting is the output of config show for one setting.
type shownSetting struct {
	Name   string `json:"name"`
	Key    string `json:"key"` // SECTION.KEY
	Value  string `json:"value"`
	Source string `json:"source"`
	Where  string `json:"where,omitempty"`
}

func configShowCommand(f *flag.FlagSet) action {
	s := newSettings("")
	s.declare(f, allRoles)
	asJSON := f.Bool("json", false, "an array of objects instead of a table")

	return func(ctx context.Context, _ []string, env *environment) error {
		problems, err := s.resolve(ctx, os.LookupEnv)
		if err != nil {
			return err
		}

		for _, p := range problems {
			fmt.Fprintln(env.stderr, severity(p)+":", p)
		}

		var list []shownSetting

		for _, o := range s.Settings {
			from := s.Origin(o.Flag)
			list = append(list,
				shownSetting{o.Flag, o.Section + "." + o.Key, o.Shown(), from.Source.String(), from.Where})
		}

		for i, o := range list {
			if o.Name == "metrics-bind-address" && o.Value == "" {
				list[i].Where = "controller " + controllerMetrics + ", agent " + agentMetrics
			}
		}

		if *asJSON {
			err = env.printJSON(list)
		} else {
			err = showTable(env.stdout, list)
		}

		if err == nil && countMistakes(problems) > 0 {
			return exitStatus(1)
		}

		return err
	}
}

// showTable prints the settings for a terminal.
func showTable(w io.Writer, list []shownSetting) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SETTING\tVALUE\tFROM")

	for _, o := range list {
		from := o.Source
		switch {
		case o.Where == "":
		case o.Source == setting.Default.String():
			from += " (" + o.Where + ")"
		default:
			from = o.Where
		}

		fmt.Fprintf(table, "%s\t%s\t%s\n", o.Name, o.Value, from)
	}

	return table.Flush()
}

func configCheckCommand(f *flag.FlagSet) action {
	s := newSettings("")
	s.declare(f, allRoles)
	asJSON := f.Bool("json", false, "an array of objects instead of lines")

	return func(_ context.Context, args []string, env *environment) error {
		if len(args) > 1 {
			return noArguments(args[1:])
		}

		if len(args) == 1 {
			s.configFile = args[0]
		}

		problems, err := s.check()
		if err != nil {
			return err
		}

		if *asJSON {
			if err := env.printJSON(problems); err != nil {
				return err
			}
		} else {
			for _, p := range problems {
				fmt.Fprintln(env.stdout, severity(p)+":", p)
			}

			n := countMistakes(problems)
			fmt.Fprintf(env.stdout, "%d errors, %d warnings\n", n, len(problems)-n)
		}

		if countMistakes(problems) > 0 {
			return exitStatus(1)
		}

		return nil
	}
}

func severity(p setting.Problem) string {
	if p.Warning {
		return "warning"
	}

	return "error"
}

// countMistakes returns the number of problems that are not warnings.
func countMistakes(problems []setting.Problem) int {
	n := 0

	for _, p := range problems {
		if !p.Warning {
			n++
		}
	}

	return n
}

// check returns all errors in the file and the flags, for every role.
func (s *settings) check() ([]setting.Problem, error) {
	noEnvironment := func(string) (string, bool) { return "", false }

	file, err := s.readFile(noEnvironment)
	if err != nil {
		return nil, err
	}

	if file == nil {
		return nil, fmt.Errorf("no file given, and there is no %s", defaultConfigFile)
	}

	problems := s.Resolve(setting.Sources{File: file})

	const inPod = false // its service account is not part of a file
	if err := s.resolveConflicts(inPod); err != nil {
		return nil, err
	}

	problems = append(append(problems, s.checkAPI()...), s.exposedKeys()...)

	// Both roles check combinations of settings. A message has the form "SUBJECT: want LIMIT". If both
	// have a limit for the same subject, the agent's message is reported, which has the stricter
	// limit.
	isReported := map[string]bool{}
	s.agent.nodeName = "node" // a file for all nodes has no name, but the agent requires one

	for _, err := range []error{s.checkAgent(), s.checkController()} {
		for _, message := range lines(err) {
			subject, _, _ := strings.Cut(message, ": want ")
			if !isReported[subject] {
				isReported[subject] = true

				problems = append(problems, setting.Problem{Where: s.sourcesOf(message), Message: message})
			}
		}
	}

	return problems, nil
}

// placeholder replaces the API server while other settings are checked.
var placeholder = apiServer{url: "https://placeholder.invalid"}

func (s *settings) checkAgent() error {
	cluster := *s.cluster
	cluster.api = placeholder

	if cluster.mode == modeUnderlay {
		_, err := s.agent.underlayConfig(&cluster)
		return err
	}

	_, err := s.agent.config(&cluster)

	return err
}

func (s *settings) checkController() error {
	cluster := *s.cluster
	cluster.api = placeholder

	if cluster.mode == modeUnderlay {
		return s.checkUnderlayController(&cluster)
	}

	_, err := s.controller.config(&cluster)

	return err
}

// checkUnderlayController returns the mistakes of a controller of underlay mode. A file without
// settings of OpenStack is for agents only, and passes.
func (s *settings) checkUnderlayController(cluster *clusterFlags) error {
	hasOpenstack := slices.ContainsFunc(s.Settings, func(o *setting.Setting) bool {
		return o.Section == openstackSection && s.Origin(o.Flag).Source != setting.Default
	})
	if !hasOpenstack {
		return nil
	}

	_, err := s.controller.underlayConfig(cluster)

	return err
}

// checkAPI checks the access to the API server without connecting.
func (s *settings) checkAPI() []setting.Problem {
	api := s.cluster.api
	if api.kubeconfig == "" && api.url == "" {
		return []setting.Problem{{
			Message: "no kubeconfig and no apiserver: only in a pod, with its service account",
			Warning: true,
		}}
	}

	var out []setting.Problem

	files := map[string]string{
		"kubeconfig":     api.kubeconfig,
		"k8s-cacert":     api.caFile,
		"k8s-token-file": api.tokenFile,
	}
	for name, path := range files {
		if path == "" || isPEM(path) {
			continue
		}

		if _, err := os.ReadFile(path); err != nil {
			out = append(out,
				setting.Problem{Where: s.Origin(name).Where, Message: fmt.Sprintf("%s: %v", name, err)})
		}
	}

	slices.SortFunc(out, func(a, b setting.Problem) int { return strings.Compare(a.Message, b.Message) })

	if out != nil {
		return out
	}

	config, err := api.restConfig()
	if err == nil {
		_, err = rest.HTTPClientFor(config)
	}

	if err != nil {
		name := "k8s-apiserver"
		if api.kubeconfig != "" {
			name = "kubeconfig"
		}

		out = append(out, setting.Problem{Where: s.Origin(name).Where, Message: err.Error()})
	}

	return out
}

// sourcesOf returns the sources of the settings that a message is about.
func (s *settings) sourcesOf(message string) string {
	var out []string
	for _, o := range s.settingsAbout(message) {
		if where := s.Origin(o.Flag).Where; !slices.Contains(out, where) {
			out = append(out, where)
		}
	}

	return strings.Join(out, ", ")
}

// settingsAbout returns the given settings that a message is about.
func (s *settings) settingsAbout(message string) []*setting.Setting {
	var out []*setting.Setting

	for _, o := range s.Settings {
		about := slices.ContainsFunc(o.About,
			func(words string) bool { return strings.Contains(message, words) })
		if about && s.Origin(o.Flag).Source != setting.Default {
			out = append(out, o)
		}
	}

	return out
}

// lines returns the messages of a joined error.
func lines(err error) []string {
	if err == nil {
		return nil
	}

	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []string{err.Error()}
	}

	var out []string
	for _, e := range joined.Unwrap() {
		out = append(out, lines(e)...)
	}

	return out
}
