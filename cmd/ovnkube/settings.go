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

// settings are all settings of the roles: the one table for flags, file keys, variables and
// docs/configuration.md.
type settings struct {
	*setting.Set
	cluster    *clusterFlags
	controller *controllerFlags
	agent      *agentFlags
	daemon     daemon.Options
	replaces   bool // replaces an agent that runs on this node
	configFile string
}

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

// load completes the command line from file, environment and OVS, and opens the log, which gets the
// warnings. With mistakes, it returns both the log and the mistakes.
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

	// Runs twice, as the address of OVS's database may itself be configured.
	problems := s.Resolve(sources)
	if ids := s.externalIDs(ctx); len(ids) > 0 {
		problems = s.Resolve(setting.Sources{File: sources.File, Environment: lookup, ExternalIDs: ids})
	}

	_, inPod := lookup("KUBERNETES_SERVICE_HOST")
	err = s.follow(inPod)

	return append(problems, s.exposed()...), err
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

// externalIDs returns the external_ids of the node's OVS, or nil without OVS.
func (s *settings) externalIDs(ctx context.Context) map[string]string {
	if strings.HasPrefix(s.agent.ovsdb, "unix:") {
		if _, err := os.Stat(strings.TrimPrefix(s.agent.ovsdb, "unix:")); err != nil {
			return nil
		}
	}

	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()

	o, err := ovs.Dial(ctx, s.agent.ovsdb)
	if err != nil {
		return nil
	}
	defer o.Close()

	ids, err := o.ExternalIDs(ctx)
	if err != nil {
		return nil
	}

	return ids
}

// follow derives settings from combinations. Of a kubeconfig and an API server address, the one
// from the higher source is used. A pod's service account takes precedence over the values in OVS.
func (s *settings) follow(inPod bool) error {
	config, server := s.Origin("kubeconfig"), s.Origin("k8s-apiserver")
	above := setting.Default

	switch {
	case config.Source > server.Source:
		above = config.Source
	case server.Source == setting.ExternalIDs && inPod:
		above = setting.FromFile
	}

	var errs []error

	if above != setting.Default {
		for _, name := range []string{"k8s-apiserver", "k8s-token", "k8s-token-file", "k8s-cacert"} {
			if from := s.Origin(name); from.Source != setting.Default && from.Source < above {
				where := from.Where + " is not used: the API server is reached otherwise"
				errs = append(errs, s.Put(name, "", setting.Origin{Where: where}))
			}
		}
	}

	if config.Source != setting.Default && config.Source < server.Source {
		where := config.Where + " is not used: k8s-apiserver is given"
		errs = append(errs, s.Put("kubeconfig", "", setting.Origin{Where: where}))
	}

	errs = append(errs, s.sslFiles("nb", s.cluster.nbAddress), s.sslFiles("sb", s.cluster.sbAddress))

	return errors.Join(errs...)
}

// exposed warns about private keys that other users can read: those for ssl: addresses and that of
// a kubeconfig.
func (s *settings) exposed() []setting.Problem {
	var out []setting.Problem

	look := func(name, path string) {
		if message := keyfile.Exposed(path); path != "" && message != "" {
			out = append(out,
				setting.Problem{Where: s.Origin(name).Where, Message: name + ": " + message, Warning: true})
		}
	}

	ofDatabases := map[string]struct{ address, key string }{
		"nb-client-privkey": {s.cluster.nbAddress, s.cluster.nbTLS.Key},
		"sb-client-privkey": {s.cluster.sbAddress, s.cluster.sbTLS.Key},
	}
	for name, of := range ofDatabases {
		if strings.Contains(","+of.address, ",ssl:") {
			look(name, of.key)
		}
	}

	look("node-server-privkey", s.cluster.metricsTLS.Key)

	if s.cluster.api.kubeconfig != "" {
		if config, err := s.cluster.api.restConfig(); err == nil { // otherwise the role reports the error
			look("kubeconfig", config.KeyFile)

			if len(config.KeyData) > 0 && config.KeyFile == "" {
				look("kubeconfig", s.cluster.api.kubeconfig)
			}
		}
	}

	slices.SortFunc(out, func(a, b setting.Problem) int { return strings.Compare(a.Message, b.Message) })

	return out
}

// sslFiles fills in ovn-kubernetes's default files for an ssl: address.
func (s *settings) sslFiles(short, address string) error {
	if !strings.Contains(","+address, ",ssl:") {
		return nil
	}

	var errs []error

	for flag, name := range map[string]string{"privkey": "privkey.pem", "cert": "cert.pem", "cacert": "ca.cert"} {
		flag = short + "-client-" + flag
		if s.Origin(flag).Source == setting.Default {
			errs = append(errs, s.Put(flag, sslFile(short, name), setting.Origin{Where: "of ssl: addresses"}))
		}
	}

	return errors.Join(errs...)
}

// located adds to each error the sources of the settings that it is about, which may not be obvious
// to the reader.
func (s *settings) located(err error) error {
	if err == nil {
		return nil
	}

	if list, is := err.(interface{ Unwrap() []error }); is {
		var out []error
		for _, e := range list.Unwrap() {
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
