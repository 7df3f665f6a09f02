package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// ovn is a Northbound and a Southbound database, empty at first, with northd.
type ovn struct {
	dir            string
	nb, sb, northd *process.Process
}

func (o *ovn) endpoint() string { return "unix:" + filepath.Join(o.dir, "nb.sock") }

// southbound is the address of the Southbound database.
func (o *ovn) southbound() string { return "unix:" + filepath.Join(o.dir, "sb.sock") }

// startOVN starts databases and northd with their files in dir, whose path must be short enough for
// a unix socket. The schemas are those of the installed OVN, because northd waits for ever for a
// database that lacks one of its tables.
func startOVN(ctx context.Context, dir string) (*ovn, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}

	o := &ovn{dir: dir}

	var err error
	if o.nb, err = o.database(ctx, "nb", platform.OVNFile("ovn-nb.ovsschema")); err == nil {
		o.sb, err = o.database(ctx, "sb", platform.OVNFile("ovn-sb.ovsschema"))
	}

	if err == nil {
		o.northd, err = process.Start(process.Spec{
			Argv: []string{
				"ovn-northd", "--ovnnb-db=" + o.endpoint(), "--ovnsb-db=" + o.southbound(),
				"--unixctl=" + filepath.Join(dir, "northd.ctl"), "-vconsole:warn", "-vsyslog:off",
			},
			Env: []string{"OVN_RUNDIR=" + dir}, Log: filepath.Join(dir, "northd.log"), Tethered: true,
		})
	}

	if err != nil {
		return nil, errors.Join(fmt.Errorf("start OVN: %w", err), o.stop())
	}

	return o, nil
}

func (o *ovn) database(ctx context.Context, name, schema string) (*process.Process, error) {
	db, sock := filepath.Join(o.dir, name+".db"), filepath.Join(o.dir, name+".sock")
	if _, err := tool(ctx, nil, "ovsdb-tool", "create", db, schema); err != nil {
		return nil, err
	}

	p, err := process.Start(process.Spec{
		Argv: []string{
			"ovsdb-server", "--no-chdir", "--unixctl=" + filepath.Join(o.dir, name+".ctl"), "--remote=punix:" + sock,
			"-vconsole:warn", "-vsyslog:off", db,
		},
		Log: filepath.Join(o.dir, name+".log"), Tethered: true,
	})
	if err != nil {
		return nil, err
	}

	return p, p.Await(ctx, "ovsdb-server", func() error {
		conn, err := net.Dial("unix", sock)
		if err == nil {
			conn.Close()
		}

		return err
	})
}

// sync waits until northd has processed the Northbound database.
func (o *ovn) sync(ctx context.Context) error { return o.wait(ctx, "sb") }

// wait waits until northd (target "sb"), or northd and the real node ("hv"), have processed the
// Northbound database. The targets are those of ovn-nbctl's option --wait.
func (o *ovn) wait(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()

	_, err := tool(ctx, nil, "ovn-nbctl", "--db="+o.endpoint(), "--no-leader-only", "--wait="+target, "sync")

	return err
}

// tool runs a program, with env added to the environment, and returns its output.
func tool(ctx context.Context, env []string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)

	cmd.Env = append(os.Environ(), env...)

	var stderr bytes.Buffer

	cmd.Stderr = &stderr

	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w: %s", strings.Join(argv[:min(len(argv), 6)], " "), err, bytes.TrimSpace(stderr.Bytes()))
	}

	return strings.TrimSpace(string(out)), nil
}

func (o *ovn) stop() error {
	var errs []error

	for _, p := range []*process.Process{o.northd, o.sb, o.nb} {
		if p != nil {
			errs = append(errs, p.Stop(0))
		}
	}

	return errors.Join(append(errs, os.RemoveAll(o.dir))...)
}
