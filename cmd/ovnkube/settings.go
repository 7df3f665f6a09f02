package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/daemon"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
	"github.com/ovn-ebpf/ovn-ebpf/keyfile"
)

// defaultConfigFile is read if it exists.
const defaultConfigFile = "/etc/openvswitch/ovn_k8s.conf"

// Roles of settings.
const (
	roleController setting.Role = 1 << iota
	roleAgent
	allRoles = roleController | roleAgent
)

// settings are the settings of all roles. Flags, keys of the configuration file, environment
// variables and docs/configuration.md are made from its table.
type settings struct {
	*setting.Set
	cluster       *clusterFlags
	controller    *controllerFlags
	agent         *agentFlags
	daemon        daemon.Options
	replacesAgent bool   // stop an agent that runs on this node, and take its place
	configFile    string // "": the default file, if it exists
}

// newSettings returns the settings with their defaults. metricsAddress is the default of the role;
// "" if the command has no role or both.
func newSettings(metricsAddress string) *settings {
	s := &settings{
		cluster:    newClusterFlags(metricsAddress),
		controller: newControllerFlags(),
		agent:      newAgentFlags(),
	}
	table := setting.Table{Settings: s.cluster.settings(), Aliases: aliases(), UnusedNames: unused()}
	table.Settings = append(table.Settings, s.controller.settings()...)
	table.Settings = append(table.Settings, s.agent.settings()...)
	s.Set = setting.New(table)

	return s
}

func (s *settings) declare(f *flag.FlagSet, role setting.Role) {
	s.declareConfigFile(f)
	s.Declare(f, role)
}

func (s *settings) declareConfigFile(f *flag.FlagSet) {
	f.StringVar(&s.configFile, "config-file", "",
		"`file` with settings; default: "+defaultConfigFile+" if it exists")
}

// load completes the command line from file, environment and Open vSwitch, opens the log, and logs
// the warnings. If values are invalid, it returns an error and the log. If a source cannot be read,
// it returns only an error.
func (s *settings) load(ctx context.Context, env *environment) (*slog.Logger, error) {
	problems, err := s.resolve(ctx, os.LookupEnv)
	if err != nil {
		return nil, err
	}

	log := s.cluster.log.open(env.stderr)

	var mistakes []error

	for _, p := range problems {
		if p.Warning {
			log.Warn("configuration", "where", p.Where, "message", p.Message)
		} else {
			mistakes = append(mistakes, errors.New(p.String()))
		}
	}

	return log, errors.Join(mistakes...)
}

// resolveForTool is like resolve, for tools: it reports mistakes as warnings, since the roles
// reject them, and uses the valid values.
func (s *settings) resolveForTool(ctx context.Context, env *environment) error {
	problems, err := s.resolve(ctx, os.LookupEnv)
	if err != nil {
		return err
	}

	for _, p := range problems {
		if !p.Warning {
			fmt.Fprintln(env.stderr, "warning:", p)
		}
	}

	return nil
}

// resolve reads all sources. Invalid values are returned as problems.
func (s *settings) resolve(
	ctx context.Context,
	lookup func(string) (string, bool),
) ([]setting.Problem, error) {
	sources := setting.Sources{Environment: lookup}

	var err error
	if sources.File, err = s.readFile(lookup); err != nil {
		return nil, err
	}

	// Values in Open vSwitch need a second pass, because the address of its database is itself a
	// setting.
	problems := s.Resolve(sources)
	if ids := s.externalIDs(ctx); len(ids) > 0 {
		problems = s.Resolve(setting.Sources{File: sources.File, Environment: lookup, ExternalIDs: ids})
	}

	_, inPod := lookup("KUBERNETES_SERVICE_HOST")
	err = s.resolveConflicts(inPod)

	return append(problems, s.exposedKeys()...), err
}

// readFile reads the given file, or the default one.
func (s *settings) readFile(lookup func(string) (string, bool)) (*setting.File, error) {
	path := s.configFile
	if path == "" {
		path, _ = lookup("OVNKUBE_CONFIG_FILE")
	}

	if path != "" {
		return setting.ReadFile(path)
	}

	file, err := setting.ReadFile(defaultConfigFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}

	return file, err
}

// externalIDs returns the external_ids of the node's Open vSwitch. It returns nil if Open vSwitch
// does not answer: a controller's host may not have it.
func (s *settings) externalIDs(ctx context.Context) map[string]string {
	if strings.HasPrefix(s.agent.ovsdb, "unix:") {
		if _, err := os.Stat(strings.TrimPrefix(s.agent.ovsdb, "unix:")); err != nil {
			return nil
		}
	}

	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()

	client, err := ovs.Dial(ctx, s.agent.ovsdb)
	if err != nil {
		return nil
	}
	defer client.Close()

	ids, err := client.ExternalIDs(ctx)
	if err != nil {
		return nil
	}

	return ids
}

// resolveConflicts decides between settings that exclude each other, and fills in defaults that
// depend on other settings. Of a kubeconfig and the address of an API server, it keeps the one from
// the higher source. In a pod, the service account takes precedence over an address in Open
// vSwitch.
func (s *settings) resolveConflicts(inPod bool) error {
	kubeconfig, server := s.Origin("kubeconfig"), s.Origin("k8s-apiserver")

	// Values for an API server's address from sources below this one are not used.
	lowest := setting.Default

	switch {
	case kubeconfig.Source > server.Source:
		lowest = kubeconfig.Source
	case server.Source == setting.ExternalIDs && inPod:
		lowest = setting.FromFile
	}

	var errs []error

	for _, name := range []string{"k8s-apiserver", "k8s-token", "k8s-token-file", "k8s-cacert"} {
		if from := s.Origin(name); from.Source != setting.Default && from.Source < lowest {
			where := from.Where + " is not used: the API server is reached otherwise"
			errs = append(errs, s.Put(name, "", setting.Origin{Where: where}))
		}
	}

	if kubeconfig.Source != setting.Default && kubeconfig.Source < server.Source {
		where := kubeconfig.Where + " is not used: k8s-apiserver is given"
		errs = append(errs, s.Put("kubeconfig", "", setting.Origin{Where: where}))
	}

	errs = append(errs,
		s.putDefaultTLSFiles("nb", s.cluster.nbAddress), s.putDefaultTLSFiles("sb", s.cluster.sbAddress))

	return errors.Join(errs...)
}

// exposedKeys warns about private keys that other users can read: those for ssl: addresses, that of
// the metrics server, and that of a kubeconfig.
func (s *settings) exposedKeys() []setting.Problem {
	var out []setting.Problem

	warnIfExposed := func(name, path string) {
		if message := keyfile.Exposed(path); path != "" && message != "" {
			out = append(out,
				setting.Problem{Where: s.Origin(name).Where, Message: name + ": " + message, Warning: true})
		}
	}

	if usesTLS(s.cluster.nbAddress) {
		warnIfExposed("nb-client-privkey", s.cluster.nbTLS.Key)
	}

	if usesTLS(s.cluster.sbAddress) {
		warnIfExposed("sb-client-privkey", s.cluster.sbTLS.Key)
	}

	warnIfExposed("node-server-privkey", s.cluster.metricsTLS.Key)

	if s.cluster.api.kubeconfig != "" {
		if config, err := s.cluster.api.restConfig(); err == nil { // otherwise the role reports the error
			warnIfExposed("kubeconfig", config.KeyFile)

			if len(config.KeyData) > 0 && config.KeyFile == "" {
				warnIfExposed("kubeconfig", s.cluster.api.kubeconfig)
			}
		}
	}

	slices.SortFunc(out, func(a, b setting.Problem) int { return strings.Compare(a.Message, b.Message) })

	return out
}

// usesTLS reports whether one of the comma-separated addresses of a database begins with ssl:.
func usesTLS(addresses string) bool { return strings.Contains(","+addresses, ",ssl:") }

// putDefaultTLSFiles sets the files for an ssl: address that are not configured to ovn-kubernetes'
// defaults. short is the prefix of the settings: nb or sb.
func (s *settings) putDefaultTLSFiles(short, address string) error {
	if !usesTLS(address) {
		return nil
	}

	var errs []error

	for kind, file := range map[string]string{"privkey": "privkey.pem", "cert": "cert.pem", "cacert": "ca.cert"} {
		flag := short + "-client-" + kind
		if s.Origin(flag).Source == setting.Default {
			errs = append(errs, s.Put(flag, sslFile(short, file), setting.Origin{Where: "of ssl: addresses"}))
		}
	}

	return errors.Join(errs...)
}

// located adds to each error the sources of the settings that it is about. A user may not know that
// a value is from Open vSwitch or the environment.
func (s *settings) located(err error) error {
	if err == nil {
		return nil
	}

	if joined, isJoined := err.(interface{ Unwrap() []error }); isJoined {
		var out []error
		for _, e := range joined.Unwrap() {
			out = append(out, s.located(e))
		}

		return errors.Join(out...)
	}

	var from []string
	for _, o := range s.settingsAbout(err.Error()) {
		from = append(from, o.Flag+" is from "+s.Origin(o.Flag).Where)
	}

	if len(from) == 0 {
		return err
	}

	return fmt.Errorf("%w (%s)", err, strings.Join(from, ", "))
}
