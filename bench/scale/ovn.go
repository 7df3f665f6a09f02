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
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// ovn is a Northbound and a Southbound database, empty at first, with northd.
type ovn struct {
	dir            string
	nb, sb, northd *process.Process
}

func (o *ovn) endpoint() string { return "unix:" + filepath.Join(o.dir, "nb.sock") }

// startOVN runs all three from a directory whose path is short enough for a socket.
func startOVN(ctx context.Context, schemas, dir string) (*ovn, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	o := &ovn{dir: dir}
	var err error
	if o.nb, err = o.database(ctx, "nb", filepath.Join(schemas, "ovn-nb.ovsschema")); err == nil {
		o.sb, err = o.database(ctx, "sb", filepath.Join(schemas, "ovn-sb.ovsschema"))
	}
	if err == nil {
		o.northd, err = process.Start(process.Spec{
			Argv: []string{
				"ovn-northd", "--ovnnb-db=" + o.endpoint(), "--ovnsb-db=unix:" + filepath.Join(dir, "sb.sock"),
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
	if out, err := exec.CommandContext(ctx, "ovsdb-tool", "create", db, schema).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("create database %s: %w: %s", name, err, out)
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

// sync waits until northd has done what the Northbound database says.
func (o *ovn) sync(ctx context.Context) error {
	const timeout = 10 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ovn-nbctl", "--db="+o.endpoint(), "--no-leader-only", "--wait=sb", "sync")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("wait for northd: %w: %s", err, stderr.String())
	}
	return nil
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
