package ovnd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
)

const vswitchSchema = "vswitch.ovsschema"

// Switch is a node's Open vSwitch and ovn-controller.
type Switch struct {
	Dir       string // of the database
	RunDir    string // of Open vSwitch's sockets
	OVNRunDir string // of ovn-controller's
	TLS       TLS    // of ovn-controller
	// AwaitCertificate says that ovn-controller's certificate is still to come.
	AwaitCertificate bool
	// Host says that Open vSwitch is the node's own, so that its database has no mark.
	Host bool
}

func (s Switch) file() string   { return filepath.Join(s.Dir, "conf.db") }
func (s Switch) remote() string { return "unix:" + filepath.Join(s.RunDir, "db.sock") }

// Database prepares Open vSwitch's database and returns its server's command line. It changes
// nothing on a node that has its own Open vSwitch.
func (s Switch) Database(ctx context.Context) ([]string, error) {
	if err := errors.Join(s.checkUnused(), s.checkFile(ctx)); err != nil {
		return nil, fmt.Errorf("start Open vSwitch's database: %w", err)
	}

	for _, dir := range []string{s.Dir, s.RunDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("start Open vSwitch's database: %w", err)
		}
	}

	_, err := os.Stat(s.file())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = s.create(ctx)
	case err == nil:
		err = s.convert(ctx)
	}

	if err != nil {
		return nil, fmt.Errorf("prepare Open vSwitch's database: %w", err)
	}

	argv := []string{
		"ovsdb-server", "--remote=p" + s.remote(), "--pidfile=" + filepath.Join(s.RunDir, "ovsdb-server.pid"),
		"--unixctl=" + filepath.Join(s.RunDir, "ovsdb-server.ctl"),
	}

	return append(append(argv, logging...), s.file()), nil
}

// create makes the database's file with the mark, in one step.
func (s Switch) create(ctx context.Context) error {
	half := s.file() + ".new"
	if err := os.RemoveAll(half); err != nil {
		return err
	}

	if _, err := run(ctx, "ovsdb-tool", "create", half, schemaPath(vswitchSchema)); err != nil {
		return err
	}

	if _, err := run(ctx, "ovsdb-tool", "transact", half, insertRow); err != nil {
		return err
	}

	return os.Rename(half, s.file())
}

// convert converts the database's file where its schema is older than the installed one.
func (s Switch) convert(ctx context.Context) error {
	have, err := run(ctx, "ovsdb-tool", "db-version", s.file())
	if err != nil {
		return err
	}

	if older, err := olderThanInstalled(ctx, have, vswitchSchema); err != nil || !older {
		return err
	}

	_, err = run(ctx, "ovsdb-tool", "convert", s.file(), schemaPath(vswitchSchema))

	return err
}

// Daemon waits for the database, tells it its version, and returns ovs-vswitchd's command line.
func (s Switch) Daemon(ctx context.Context) ([]string, error) {
	if err := s.checkServer(ctx); err != nil {
		return nil, fmt.Errorf("start ovs-vswitchd: %w", err)
	}

	version, err := run(ctx, "ovs-vswitchd", "--version")
	if err != nil {
		return nil, fmt.Errorf("start ovs-vswitchd: %w", err)
	}

	first, _, _ := strings.Cut(string(version), "\n")
	setVersion := []string{
		"ovs-vsctl", "--timeout=5", "--db=" + s.remote(), "--no-wait", "--", "init", "--",
		"set", "Open_vSwitch", ".", "ovs_version=" + first[strings.LastIndex(first, " ")+1:],
	}

	err = await(ctx, func() error { _, err := run(ctx, setVersion...); return err })
	if err != nil {
		return nil, fmt.Errorf("start ovs-vswitchd: %w", err)
	}

	pidfile := "--pidfile=" + filepath.Join(s.RunDir, "ovs-vswitchd.pid")

	return append([]string{"ovs-vswitchd", s.remote(), pidfile}, logging...), nil
}

// Controller waits for the database and the certificate, and returns ovn-controller's command line.
// The agent tells ovn-controller its database. It is an error if another ovn-controller runs on the
// node.
func (s Switch) Controller(ctx context.Context, log *slog.Logger) ([]string, error) {
	if err := os.MkdirAll(s.OVNRunDir, 0o755); err != nil {
		return nil, fmt.Errorf("start ovn-controller: %w", err)
	}

	ready := s.Await // ovn-controller creates br-int at once
	if s.Host {
		ready = s.awaitRow
	}

	if err := ready(ctx); err != nil {
		return nil, fmt.Errorf("start ovn-controller: %w", err)
	}

	if err := s.controllerEnded(); err != nil {
		return nil, fmt.Errorf("start ovn-controller: %w: stop the node's own one", err)
	}

	if s.AwaitCertificate {
		if err := s.awaitCertificate(ctx, log); err != nil {
			return nil, fmt.Errorf("start ovn-controller: %w", err)
		}
	}

	pidfile := "--pidfile=" + filepath.Join(s.OVNRunDir, "ovn-controller.pid")
	argv := []string{"ovn-controller", s.remote(), pidfile}

	return append(append(argv, s.TLS.options()...), logging...), nil
}

// awaitCertificate waits for the files of TLS.
func (s Switch) awaitCertificate(ctx context.Context, log *slog.Logger) error {
	last := ""

	return await(ctx, func() error {
		for _, file := range []string{s.TLS.Key, s.TLS.Cert, s.TLS.CA} {
			if _, err := os.Stat(file); err != nil {
				if last != file {
					last = file
					log.Info("waiting for the node's certificate", "file", file)
				}

				return err
			}
		}

		return nil
	})
}

// Await waits until Open vSwitch's database is there and initialised, and returns an error if it is
// not ovn-ebpf's. An agent that starts before would not see the node's own settings in it.
func (s Switch) Await(ctx context.Context) error {
	if err := s.checkServer(ctx); err != nil {
		return err
	}

	return s.awaitRow(ctx)
}

// awaitRow waits until ovs-vswitchd or its starter has initialised the database.
func (s Switch) awaitRow(ctx context.Context) error {
	return await(ctx, func() error {
		_, err := run(ctx, "ovs-vsctl", "--timeout=5", "--db="+s.remote(), "get", "Open_vSwitch", ".",
			"ovs_version")

		return err
	})
}

// Remove waits for the end of ovn-controller, which would make its bridge again, deletes every
// bridge, waits until ovs-vswitchd has done so, and empties the directories. Servers that still run
// keep their open files, and end with the uninstallation. A database that is not ovn-ebpf's is an
// error, and then nothing is removed.
func (s Switch) Remove(ctx context.Context, dirs ...string) error {
	if err := s.checkFile(ctx); err != nil {
		return fmt.Errorf("remove Open vSwitch: %w", err)
	}

	if _, err := os.Stat(s.file()); errors.Is(err, fs.ErrNotExist) {
		return empty(dirs) // an earlier call has deleted the bridges
	} else if err != nil {
		return fmt.Errorf("remove Open vSwitch: %w", err)
	}

	if err := await(ctx, s.controllerEnded); err != nil {
		return fmt.Errorf("remove Open vSwitch: %w", err)
	}

	if err := s.checkServer(ctx); err != nil {
		return fmt.Errorf("remove Open vSwitch: %w", err)
	}

	out, err := run(ctx, "ovs-vsctl", "--timeout=30", "--db="+s.remote(), "list-br")
	if err != nil {
		return fmt.Errorf("remove Open vSwitch: %w", err)
	}

	for _, bridge := range strings.Fields(string(out)) {
		_, err := run(ctx, "ovs-vsctl", "--timeout=60", "--db="+s.remote(), "--if-exists", "del-br", bridge)
		if err != nil {
			return fmt.Errorf("remove Open vSwitch: %w", err)
		}
	}

	return empty(dirs)
}

// controllerEnded returns an error while ovn-controller answers at its control socket.
func (s Switch) controllerEnded() error {
	pid, err := os.ReadFile(filepath.Join(s.OVNRunDir, "ovn-controller.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	socket := "ovn-controller." + strings.TrimSpace(string(pid)) + ".ctl"

	conn, err := net.Dial("unix", filepath.Join(s.OVNRunDir, socket))
	if err != nil {
		return nil // nothing listens: it has ended
	}

	return errors.Join(errors.New("ovn-controller still runs"), conn.Close())
}

// empty removes what is in the directories.
func empty(dirs []string) error {
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove Open vSwitch: %w", err)
		}

		for _, e := range entries {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("remove Open vSwitch: %w", err)
			}
		}
	}

	return nil
}
