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

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	agentenv "github.com/ovn-ebpf/ovn-ebpf/agent/environment"
	"github.com/ovn-ebpf/ovn-ebpf/authority"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/sb"
	"github.com/ovn-ebpf/ovn-ebpf/ovnd"
)

const containerDetail = `The chart's containers run these commands. A command that starts a daemon prepares what the daemon needs, and
becomes the daemon: it creates a database, joins it to its cluster, or converts it first.`

// containerCommands declares the commands of the chart's containers. A command that starts a daemon
// has two steps: a method of ovnd.Central or ovnd.Switch prepares the daemon and returns its
// command line, and ovnd.Become replaces this process by the daemon.
func containerCommands() *command {
	return &command{
		name:    "container",
		group:   groupRun,
		summary: "start a daemon of OVN or Open vSwitch in a container",
		detail:  containerDetail,
		children: []*command{
			{name: "ovn-nb", summary: "OVN's Northbound database", setup: centralCommand(prepareDatabase(northbound))},
			{name: "ovn-sb", summary: "OVN's Southbound database", setup: centralCommand(prepareDatabase(southbound))},
			{
				name:      "check-member",
				arguments: "ovn-nb|ovn-sb",
				summary:   "fail if a database's server must be restarted because a write has failed",
				setup:     checkMemberCommand,
			},
			{
				name:    "ovn-sb-relay",
				summary: "the server through which nodes reach OVN's Southbound database",
				setup:   centralCommand(ovnd.Central.Relay),
			},
			{
				name:    "ovn-northd",
				summary: "OVN's northd, once this member's databases are connected",
				setup:   centralCommand(ovnd.Central.Northd),
			},
			{name: "ovs-db", summary: "Open vSwitch's database", setup: switchCommand(ovnd.Switch.Database)},
			{
				name:    "ovs-vswitchd",
				summary: "Open vSwitch's daemon",
				setup:   switchCommand(ovnd.Switch.Daemon),
			},
			{name: "ovn-controller", summary: "OVN's agent of a node", setup: ovnControllerCommand},
			{
				name:    "node-certificate",
				summary: "request the node's certificate for ovn-controller, and renew it",
				setup:   nodeCertificateCommand,
			},
			{
				name:    "remove-chassis",
				summary: "delete the chassis of nodes that are gone from OVN's Southbound database",
				setup:   removeChassisCommand,
			},
			{
				name:    "await-ovs",
				summary: "wait until Open vSwitch's database is there and initialised",
				setup:   awaitOVSCommand,
			},
			{
				name:      "remove-ovs",
				arguments: "[DIRECTORY...]",
				summary:   "delete all bridges, and what is in the directories of databases, when ovn-ebpf is uninstalled",
				setup:     removeOVSCommand,
			},
			{
				name:      "backup",
				arguments: "DIRECTORY",
				summary:   "write OVN's databases into a new directory below DIRECTORY",
				setup:     backupCommand,
			},
			{
				name:      "restore",
				arguments: "BACKUP",
				summary:   "replace the rows of OVN's databases by those of a backup",
				setup:     restoreCommand,
			},
			{
				name:    "certificates",
				summary: "issue and renew the certificates of OVN's databases, their clients and nodes",
				setup:   certificatesCommand,
			},
		},
	}
}

// prepareFunc prepares a daemon of OVN's control plane and returns its command line.
type prepareFunc func(ovnd.Central, context.Context, *slog.Logger) ([]string, error)

// Indexes of ovnd.Databases.
const northbound, southbound = 0, 1

func prepareDatabase(index int) prepareFunc {
	return func(c ovnd.Central, ctx context.Context, log *slog.Logger) ([]string, error) {
		return c.Database(ctx, ovnd.Databases()[index], log)
	}
}

// centralDir is the default directory of OVN's databases, a volume of the chart.
const centralDir = "/var/lib/ovn-ebpf/central"

func declareTLS(f *flag.FlagSet, t *ovnd.TLS) {
	f.StringVar(&t.Key, "private-key", "/etc/ovn/tls/privkey.pem", "`file` of the private key")
	f.StringVar(&t.Cert, "certificate", "/etc/ovn/tls/cert.pem", "`file` of the certificate")
	f.StringVar(&t.CA, "ca-cert", "/etc/ovn/tls/cacert.pem", "`file` of the authority's certificates")
}

// centralCommand returns the setup of a command that becomes a daemon of OVN's control plane.
func centralCommand(prepare prepareFunc) func(*flag.FlagSet) action {
	return func(f *flag.FlagSet) action {
		var c ovnd.Central

		members := f.String("members", "",
			"`addresses` of all members of OVN's databases, separated by commas; the first one creates them")
		address := f.String("address", "", "`address` of this member")
		f.StringVar(&c.Dir, "dir", centralDir, "`directory` of the databases")
		f.StringVar(&c.RunDir, "rundir", "/run/ovn", "`directory` of sockets and pid files")
		declareTLS(f, &c.TLS)

		return func(ctx context.Context, args []string, env *environment) error {
			if err := noArguments(args); err != nil {
				return err
			}

			var errMembers, errAddress error

			c.Members, errMembers = ovnd.ParseMembers(*members)
			if c.Address, errAddress = netip.ParseAddr(*address); errAddress != nil {
				errAddress = fmt.Errorf("parse address: %w", errAddress)
			}

			if err := errors.Join(errMembers, errAddress); err != nil {
				return err
			}

			argv, err := prepare(c, ctx, env.log())
			if err != nil {
				return err
			}

			return ovnd.Become(argv)
		}
	}
}

// clientCommand declares the flags of a client of OVN's databases, and returns an action that
// passes its only argument to act. argument names the argument in errors.
func clientCommand(
	f *flag.FlagSet,
	argument string,
	act func(context.Context, ovnd.Central, string, *environment) error,
) action {
	var c ovnd.Central

	members := f.String("members", os.Getenv("MEMBERS"),
		"`addresses` of all members of OVN's databases, separated by commas; default: $MEMBERS")
	f.StringVar(&c.RunDir, "rundir", "/run/ovn",
		"`directory` of the sockets of this member's databases, by which a backup is restored")
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

	backup := func(ctx context.Context, c ovnd.Central, dir string, env *environment) error {
		made, err := c.Backup(ctx, dir, max(*keep, 1), time.Now()) // the new backup always stays
		if err != nil {
			return err
		}

		_, err = fmt.Fprintln(env.stdout, made)

		return err
	}

	return clientCommand(f, "directory", backup)
}

func restoreCommand(f *flag.FlagSet) action {
	force := f.Bool("force", false,
		"restore a backup of another schema version, without the columns that the present one does not have")

	restore := func(ctx context.Context, c ovnd.Central, from string, _ *environment) error {
		return c.Restore(ctx, from, *force)
	}

	return clientCommand(f, "backup", restore)
}

func declareSwitch(f *flag.FlagSet, s *ovnd.Switch) {
	f.StringVar(&s.Dir, "dir", "/var/lib/ovn-ebpf/openvswitch", "`directory` of Open vSwitch's database")
	declareRunDirs(f, s)
}

func declareRunDirs(f *flag.FlagSet, s *ovnd.Switch) {
	f.StringVar(&s.RunDir, "ovs-rundir", "/run/openvswitch", "`directory` of Open vSwitch's sockets")
	f.StringVar(&s.OVNRunDir, "ovn-rundir", "/run/ovn",
		"`directory` of ovn-controller's pid file and control socket")
}

// switchCommand returns the setup of a command that becomes a daemon of Open vSwitch.
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

func ovnControllerCommand(f *flag.FlagSet) action {
	var s ovnd.Switch
	declareRunDirs(f, &s)
	declareTLS(f, &s.TLS)
	f.BoolVar(&s.AwaitCertificate, "await-certificate", false,
		"wait for the files of private key, certificate and authority")
	f.BoolVar(&s.Host, "host-ovs", false, "Open vSwitch is the node's own")

	return func(ctx context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}

		argv, err := s.Controller(ctx, env.log())
		if err != nil {
			return err
		}

		return ovnd.Become(argv)
	}
}

func nodeCertificateCommand(f *flag.FlagSet) action {
	s := operatorSettings(f)
	node := f.String("node", "", "`name` of the Node, which is also that of its chassis")
	dir := f.String("dir", authority.NodeDir,
		"`directory` of the certificate with its key, "+authority.NodeFile)

	return func(ctx context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}

		if *node == "" {
			return errors.New("--node is missing: the name of the Node")
		}

		client, err := s.apiClient(ctx, env)
		if err != nil {
			return err
		}

		log := env.log()
		klog.SetSlogLogger(log) // by which client-go's certificate manager logs

		return authority.RunNode(ctx, client, *node, *dir, log)
	}
}

func certificatesCommand(f *flag.FlagSet) action {
	s := operatorSettings(f)
	a := authority.New()
	f.StringVar(&a.Namespace, "namespace", a.Namespace, "`namespace` of the Secrets")
	f.DurationVar(&a.Handover, "handover", a.Handover,
		"`time` between the publication of a new authority and its first signature, in which kubelets bring it to every node")
	f.DurationVar(&a.NodeLife, "node-life", a.NodeLife,
		"`time` for which a node's certificate is valid; nodes renew it before")
	once := f.Bool("once", false, "issue the Secrets that are missing or expire soon, and exit")

	return func(ctx context.Context, args []string, env *environment) (err error) {
		if err := noArguments(args); err != nil {
			return err
		}

		if a.Client, err = s.apiClient(ctx, env); err != nil {
			return err
		}

		a.Log = env.log()
		if *once {
			return a.Sync(ctx)
		}

		return a.Run(ctx)
	}
}

func checkMemberCommand(f *flag.FlagSet) action {
	var c ovnd.Central
	f.StringVar(&c.RunDir, "rundir", "/run/ovn", "`directory` of the servers' control sockets")

	return func(ctx context.Context, args []string, _ *environment) error {
		databases := map[string]ovnd.Database{
			"ovn-nb": ovnd.Databases()[northbound],
			"ovn-sb": ovnd.Databases()[southbound],
		}
		if len(args) != 1 || databases[args[0]] == (ovnd.Database{}) {
			return fmt.Errorf("check member of %q: want ovn-nb or ovn-sb", args)
		}

		return c.CheckMember(ctx, databases[args[0]])
	}
}

func removeChassisCommand(f *flag.FlagSet) action {
	s := operatorSettings(f)
	database := f.String("database", "unix:/run/ovn/ovnsb_db.sock",
		"`remote` of the Southbound database; over TLS, it refuses to delete a chassis")

	var c ovnd.Central
	f.StringVar(&c.Dir, "dir", centralDir,
		"`directory` of the databases; if its file system is full, the Node gets an Event")
	node := f.String("node", "", "`name` of the Node that gets an Event; none: no Event")

	return func(ctx context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}

		client, err := s.apiClient(ctx, env)
		if err != nil {
			return err
		}

		rest, err := s.operatorConfig(ctx, env)
		if err != nil {
			return err
		}

		log := env.log()

		group, ctx := errgroup.WithContext(ctx)
		if *node != "" {
			group.Go(func() error {
				warn := func(text string) { warnNode(ctx, rest, *node, agentenv.DiskFull, text, log) }
				warnOfFullDisk(ctx, c, warn)

				return nil
			})
		}

		group.Go(func() error {
			return sb.RemoveStale(ctx, client, sb.New([]string{*database}, nb.TLS{}, log), log)
		})

		return group.Wait()
	}
}

// warnOfFullDisk calls warn each time that the databases' file system becomes full, until the
// context ends.
func warnOfFullDisk(ctx context.Context, c ovnd.Central, warn func(text string)) {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()

	for wasFull := false; ; {
		err := c.CheckSpace()
		if err != nil && !wasFull {
			warn(err.Error())
		}

		wasFull = err != nil

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func removeOVSCommand(f *flag.FlagSet) action {
	var s ovnd.Switch
	declareSwitch(f, &s)

	return func(ctx context.Context, dirs []string, _ *environment) error { return s.Remove(ctx, dirs...) }
}
