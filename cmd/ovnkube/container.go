package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/authority"
	"github.com/ovn-ebpf/ovn-ebpf/ovnd"
)

const containerDetail = `The chart's containers run these. Each command prepares what the daemon needs, and becomes it: databases are
created, joined to their cluster or converted first.`

func containerCommands() *command {
	return &command{name: "container", group: groupRun, summary: "start a daemon of OVN or Open vSwitch in a container", detail: containerDetail, children: []*command{
		{name: "ovn-nb", summary: "OVN's Northbound database", setup: centralCommand(serves(0))},
		{name: "ovn-sb", summary: "OVN's Southbound database", setup: centralCommand(serves(1))},
		{name: "ovn-northd", summary: "OVN's northd, once this member's databases are connected", setup: centralCommand(ovnd.Central.Northd)},
		{name: "ovs-db", summary: "Open vSwitch's database", setup: switchCommand(ovnd.Switch.Database)},
		{name: "ovs-vswitchd", summary: "Open vSwitch's daemon", setup: switchCommand(ovnd.Switch.Daemon)},
		{name: "ovn-controller", summary: "OVN's agent of a node", setup: switchCommand(ovnd.Switch.Controller)},
		{name: "await-ovs", summary: "wait until Open vSwitch's database is there and initialised", setup: awaitCommand},
		{name: "remove-ovs", arguments: "[DIRECTORY...]", summary: "delete all bridges, and what is in the directories of databases, when ovn-ebpf is uninstalled", setup: removeCommand},
		{name: "backup", arguments: "DIRECTORY", summary: "write OVN's databases into a new directory below DIRECTORY", setup: backupCommand},
		{name: "restore", arguments: "BACKUP", summary: "replace the rows of OVN's databases by those of a backup", setup: restoreCommand},
		{name: "certificates", summary: "issue and renew the certificates of OVN's databases and their clients, as Secrets", setup: certificatesCommand},
	}}
}

// prepares prepares a daemon and returns its command line.
type prepares func(ovnd.Central, context.Context, *slog.Logger) ([]string, error)

func serves(index int) prepares {
	return func(c ovnd.Central, ctx context.Context, log *slog.Logger) ([]string, error) {
		return c.Database(ctx, ovnd.Databases()[index], log)
	}
}

func declareTLS(f *flag.FlagSet, t *ovnd.TLS) {
	f.StringVar(&t.Key, "private-key", "/etc/ovn/tls/privkey.pem", "`file` of the private key")
	f.StringVar(&t.Cert, "certificate", "/etc/ovn/tls/cert.pem", "`file` of the certificate")
	f.StringVar(&t.CA, "ca-cert", "/etc/ovn/tls/cacert.pem", "`file` of the authority's certificates")
}

func centralCommand(prepare prepares) func(*flag.FlagSet) action {
	return func(f *flag.FlagSet) action {
		var c ovnd.Central
		members := f.String("members", "", "`addresses` of all members of OVN's databases, separated by commas; the first one creates them")
		address := f.String("address", "", "`address` of this member")
		f.StringVar(&c.Dir, "dir", "/var/lib/ovn-ebpf/central", "`directory` of the databases")
		f.StringVar(&c.RunDir, "rundir", "/run/ovn", "`directory` of sockets and pid files")
		declareTLS(f, &c.TLS)
		return func(ctx context.Context, args []string, env *environment) error {
			if err := noArguments(args); err != nil {
				return err
			}
			var err, err2 error
			c.Members, err = ovnd.ParseMembers(*members)
			if c.Address, err2 = netip.ParseAddr(*address); err2 != nil {
				err = errors.Join(err, fmt.Errorf("parse address: %w", err2))
			}
			if err != nil {
				return err
			}
			argv, err := prepare(c, ctx, slog.New(slog.NewTextHandler(env.stderr, nil)))
			if err != nil {
				return err
			}
			return ovnd.Become(argv)
		}
	}
}

// clientCommand declares the flags of a client of OVN's databases, and returns an action with one
// argument.
func clientCommand(f *flag.FlagSet, argument string, act func(context.Context, ovnd.Central, string, *environment) error) action {
	var c ovnd.Central
	members := f.String("members", os.Getenv("MEMBERS"), "`addresses` of all members of OVN's databases, separated by commas; default: $MEMBERS")
	declareTLS(f, &c.TLS)
	return func(ctx context.Context, args []string, env *environment) (err error) {
		if len(args) != 1 {
			return fmt.Errorf("which %s? One argument is wanted", argument)
		}
		if c.Members, err = ovnd.ParseMembers(*members); err != nil {
			return err
		}
		return act(ctx, c, args[0], env)
	}
}

func backupCommand(f *flag.FlagSet) action {
	keep := f.Int("keep", 7, "`number` of backups that stay in the directory")
	return clientCommand(f, "directory", func(ctx context.Context, c ovnd.Central, dir string, env *environment) error {
		made, err := c.Backup(ctx, dir, max(*keep, 1), time.Now())
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(env.stdout, made)
		return err
	})
}

func restoreCommand(f *flag.FlagSet) action {
	force := f.Bool("force", false, "restore a backup of another schema version, without the columns that the present one does not have")
	return clientCommand(f, "backup", func(ctx context.Context, c ovnd.Central, from string, _ *environment) error {
		return c.Restore(ctx, from, *force)
	})
}

func declareSwitch(f *flag.FlagSet, s *ovnd.Switch) {
	f.StringVar(&s.Dir, "dir", "/var/lib/ovn-ebpf/openvswitch", "`directory` of Open vSwitch's database")
	declareRunDirs(f, s)
}

func declareRunDirs(f *flag.FlagSet, s *ovnd.Switch) {
	f.StringVar(&s.RunDir, "ovs-rundir", "/run/openvswitch", "`directory` of Open vSwitch's sockets")
	f.StringVar(&s.OVNRunDir, "ovn-rundir", "/run/ovn", "`directory` of ovn-controller's pid file and control socket")
}

func switchCommand(prepare func(ovnd.Switch, context.Context) ([]string, error)) func(*flag.FlagSet) action {
	return func(f *flag.FlagSet) action {
		var s ovnd.Switch
		declareSwitch(f, &s)
		declareTLS(f, &s.TLS)
		return func(ctx context.Context, args []string, _ *environment) error {
			if err := noArguments(args); err != nil {
				return err
			}
			argv, err := prepare(s, ctx)
			if err != nil {
				return err
			}
			return ovnd.Become(argv)
		}
	}
}

func removeCommand(f *flag.FlagSet) action {
	var s ovnd.Switch
	declareSwitch(f, &s)
	return func(ctx context.Context, dirs []string, _ *environment) error { return s.Remove(ctx, dirs...) }
}

func awaitCommand(f *flag.FlagSet) action {
	var s ovnd.Switch
	declareRunDirs(f, &s)
	return func(ctx context.Context, args []string, _ *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		return s.Await(ctx)
	}
}

func certificatesCommand(f *flag.FlagSet) action {
	s := operatorSettings(f)
	namespace := f.String("namespace", "ovn-ebpf", "`namespace` of the Secrets")
	once := f.Bool("once", false, "issue what is missing or expires soon, and exit")
	return func(ctx context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		config, err := s.operator(ctx, env)
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return fmt.Errorf("create API client: %w", err)
		}
		log := slog.New(slog.NewTextHandler(env.stderr, nil))
		if *once {
			return authority.Sync(ctx, client, *namespace, log)
		}
		return authority.Run(ctx, client, *namespace, log)
	}
}
