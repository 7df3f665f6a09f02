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
	OVNRunDir string // of ovn-controller's pid file and control socket
	TLS       TLS    // of ovn-controller
	// AwaitCertificate makes Controller wait for the files of TLS.
	AwaitCertificate bool
	// Host is set if Open vSwitch is the node's own, so that its database has no mark.
	Host bool
}

// file is the path of the database, remote its address for clients.
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

	return append(append(argv, logOptions...), s.file()), nil
}

// create makes the database's file with the mark. The file appears under its name when it is
// complete.
func (s Switch) create(ctx context.Context) error {
	unfinished := s.file() + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}

	if _, err := run(ctx, "ovsdb-tool", "create", unfinished, schemaPath(vswitchSchema)); err != nil {
		return err
	}

	if _, err := run(ctx, "ovsdb-tool", "transact", unfinished, insertRow); err != nil {
		return err
	}

	return os.Rename(unfinished, s.file())
}

// convert converts the database's file if its schema is older than the installed one.
func (s Switch) convert(ctx context.Context) error {
	version, err := run(ctx, "ovsdb-tool", "db-version", s.file())
	if err != nil {
		return err
	}

	if isOlder, err := olderThanInstalled(ctx, version, vswitchSchema); err != nil || !isOlder {
		return err
	}

	_, err = run(ctx, "ovsdb-tool", "convert", s.file(), schemaPath(vswitchSchema))

	return err
}

// Daemon waits for the database, writes the version of ovs-vswitchd into it, and returns
// ovs-vswitchd's command line. Other programs know by the version that the database is initialised
// (awaitRow).
func (s Switch) Daemon(ctx context.Context) ([]string, error) {
	if err := s.checkServer(ctx); err != nil {
		return nil, fmt.Errorf("start ovs-vswitchd: %w", err)
	}

	output, err := run(ctx, "ovs-vswitchd", "--version")
	if err != nil {
		return nil, fmt.Errorf("start ovs-vswitchd: %w", err)
	}

	// The first line is: ovs-vswitchd (Open vSwitch) 3.5.0
	line, _, _ := strings.Cut(string(output), "\n")
	setVersion := []string{
		"ovs-vsctl", "--timeout=5", "--db=" + s.remote(), "--no-wait", "--", "init", "--",
		"set", "Open_vSwitch", ".", "ovs_version=" + line[strings.LastIndex(line, " ")+1:],
	}

	err = await(ctx, func() error { _, err := run(ctx, setVersion...); return err })
	if err != nil {
		return nil, fmt.Errorf("start ovs-vswitchd: %w", err)
	}

	pidfile := "--pidfile=" + filepath.Join(s.RunDir, "ovs-vswitchd.pid")

	return append([]string{"ovs-vswitchd", s.remote(), pidfile}, logOptions...), nil
}

// Controller waits for the database and the certificate, and returns ovn-controller's command line.
// The agent configures ovn-controller in Open vSwitch's database. It is an error if another
// ovn-controller runs on the node.
func (s Switch) Controller(ctx context.Context, log *slog.Logger) ([]string, error) {
	if err := os.MkdirAll(s.OVNRunDir, 0o755); err != nil {
		return nil, fmt.Errorf("start ovn-controller: %w", err)
	}

	// ovn-controller changes the database at once. So it must be ovn-ebpf's, unless it is meant to
	// be the node's own.
	awaitDatabase := s.Await
	if s.Host {
		awaitDatabase = s.awaitRow
	}

	if err := awaitDatabase(ctx); err != nil {
		return nil, fmt.Errorf("start ovn-controller: %w", err)
	}

	if err := s.checkControllerEnded(); err != nil {
		return nil, fmt.Errorf("start ovn-controller: %w: stop the node's own one", err)
	}

	if s.AwaitCertificate {
		if err := s.awaitCertificate(ctx, log); err != nil {
			return nil, fmt.Errorf("start ovn-controller: %w", err)
		}
	}

	pidfile := "--pidfile=" + filepath.Join(s.OVNRunDir, "ovn-controller.pid")
	argv := []string{"ovn-controller", s.remote(), pidfile}

	return append(append(argv, s.TLS.options()...), logOptions...), nil
}

// awaitCertificate waits for the files of TLS.
func (s Switch) awaitCertificate(ctx context.Context, log *slog.Logger) error {
	logged := ""

	return await(ctx, func() error {
		for _, file := range []string{s.TLS.Key, s.TLS.Cert, s.TLS.CA} {
			if _, err := os.Stat(file); err != nil {
				if logged != file {
					logged = file
					log.Info("waiting for the node's certificate", "file", file)
				}

				return err
			}
		}

		return nil
	})
}

// Await waits until a server of Open vSwitch's database answers and the database is initialised. It
// returns an error if the database is not ovn-ebpf's. An agent that starts earlier would miss
// settings in it.
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

// Remove deletes every bridge and waits until ovs-vswitchd has done so. Then it empties the
// directories. First it waits for the end of ovn-controller, which would make its bridge again.
// Servers that still run keep their open files, and end with the uninstallation. If the database is
// not ovn-ebpf's, Remove returns an error and removes nothing.
func (s Switch) Remove(ctx context.Context, dirs ...string) error {
	if err := s.remove(ctx, dirs); err != nil {
		return fmt.Errorf("remove Open vSwitch: %w", err)
	}

	return nil
}

func (s Switch) remove(ctx context.Context, dirs []string) error {
	if err := s.checkFile(ctx); err != nil {
		return err
	}

	if _, err := os.Stat(s.file()); errors.Is(err, fs.ErrNotExist) {
		return emptyDirs(dirs) // an earlier call has deleted the bridges
	} else if err != nil {
		return err
	}

	if err := await(ctx, s.checkControllerEnded); err != nil {
		return err
	}

	if err := s.checkServer(ctx); err != nil {
		return err
	}

	bridges, err := run(ctx, "ovs-vsctl", "--timeout=30", "--db="+s.remote(), "list-br")
	if err != nil {
		return err
	}

	for _, bridge := range strings.Fields(string(bridges)) {
		_, err := run(ctx, "ovs-vsctl", "--timeout=60", "--db="+s.remote(), "--if-exists", "del-br", bridge)
		if err != nil {
			return err
		}
	}

	return emptyDirs(dirs)
}

// checkControllerEnded returns an error while ovn-controller answers at its control socket.
func (s Switch) checkControllerEnded() error {
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

// emptyDirs removes everything in the directories.
func emptyDirs(dirs []string) error {
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}

		for _, e := range entries {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}

	return nil
}
