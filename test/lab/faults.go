package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// standbyMetrics is the metrics address of the second controller.
const standbyMetrics = "127.0.0.1:9408"

// StartStandby starts a second controller, the process "standby", with optional extra arguments.
func (l *Lab) StartStandby(_ context.Context, extra ...string) error {
	argv := append(l.controllerArgv(), "--metrics-bind-address", standbyMetrics)
	_, err := l.spawn(l.fabric(), "standby", nil, append(argv, extra...)...)

	return err
}

// AwaitStandby waits until /readyz of the second controller returns 200.
func (l *Lab) AwaitStandby(ctx context.Context) error {
	return l.awaitReady(ctx, "standby", "central", "http://"+standbyMetrics+"/readyz")
}

// Process returns a process of the lab by the name of its log, such as "agent-node1",
// "node1-ovs-vswitchd", "central-ovnnb_db" or "kube-apiserver".
func (l *Lab) Process(name string) (*process.Process, error) {
	record := l.record(name)
	if name == "etcd" || name == "kube-apiserver" {
		record = l.path("kube/" + name + ".pid")
	}

	return process.Load(record)
}

// Kill sends SIGKILL to a process and its group. The returned function restarts the program with
// the same arguments, namespace and name.
func (l *Lab) Kill(name string) (again func() error, err error) {
	if again, err = l.Supervise(name); err != nil {
		return nil, fmt.Errorf("kill %s: %w", name, err)
	}

	p, err := l.Process(name)
	if err != nil {
		return nil, err
	}

	if err := p.Stop(0); err != nil {
		return nil, fmt.Errorf("kill %s: %w", name, err)
	}

	return again, nil
}

// RemoveSwitch ends Open vSwitch and ovn-controller of the i-th node and deletes Open vSwitch's
// database, as the removal of their packages does.
func (l *Lab) RemoveSwitch(i int) error {
	n := l.Node(i)
	for _, program := range []string{"ovn-controller", "ovs-vswitchd", "db"} {
		if err := l.stop(filepath.Base(n.RunDir)+"-"+program, syscall.SIGKILL); err != nil {
			return fmt.Errorf("remove Open vSwitch of %s: %w", n.Name, err)
		}
	}

	if err := os.Remove(filepath.Join(n.RunDir, "db.db")); err != nil {
		return fmt.Errorf("remove Open vSwitch of %s: %w", n.Name, err)
	}

	return nil
}

// InstallSwitch starts Open vSwitch and ovn-controller of the i-th node on an empty database with
// another system-id, as a new installation does after RemoveSwitch.
func (l *Lab) InstallSwitch(ctx context.Context, i int, systemID string) error {
	n := l.Node(i)
	if err := l.startSwitch(ctx, n, systemID); err != nil {
		return fmt.Errorf("install Open vSwitch of %s: %w", n.Name, err)
	}

	return nil
}

// Supervise records how a process was started. The returned function restarts it if it has ended.
func (l *Lab) Supervise(name string) (again func() error, err error) {
	p, err := l.Process(name)
	if err != nil {
		return nil, err
	}

	start := l.monitored(name)
	if start == nil {
		spec, err := l.specOf(name, p)
		if err != nil {
			return nil, fmt.Errorf("read how %s was started: %w", name, err)
		}

		start = func() error {
			_, err := process.Start(spec)
			return err
		}
	}

	return func() error {
		if p, err := l.Process(name); err == nil && p.Alive() {
			return nil
		}

		return start()
	}, nil
}

// monitored returns how to start a process that has its own monitor, and nil for others. A monitor
// overwrites its command line, so the process cannot be started again from that.
func (l *Lab) monitored(name string) (start func() error) {
	for _, n := range l.Nodes() {
		switch name {
		case n.Name + "-ovs-vswitchd":
			return func() error { return l.startVswitchd(n) }
		case n.Name + "-ovn-controller":
			return func() error { return l.startOVNController(n) }
		}
	}

	return nil
}

// specOf reads the specification of a running process.
func (l *Lab) specOf(name string, p *process.Process) (process.Spec, error) {
	s := process.Spec{Log: l.path("log/" + name + ".log"), Record: l.record(name)}
	if name == "etcd" || name == "kube-apiserver" {
		s.Log, s.Record = l.path("kube/log/"+name+".log"), l.path("kube/"+name+".pid")
	}

	if !p.Alive() {
		return s, errors.New("not running")
	}

	proc := fmt.Sprintf("/proc/%d/", p.PID)
	for file, field := range map[string]*[]string{"cmdline": &s.Argv, "environ": &s.Env} {
		b, err := os.ReadFile(proc + file)
		if err != nil {
			return s, err
		}

		for _, word := range bytes.Split(bytes.TrimSuffix(b, []byte{0}), []byte{0}) {
			*field = append(*field, string(word))
		}
	}

	at, err := netns.Identify(proc + "ns/net")
	if err != nil {
		return s, err
	}

	names, err := netns.List(l.opts.Name + "-")
	if err != nil {
		return s, err
	}

	for _, ns := range names {
		if id, err := netns.Identify(netns.Path(ns)); err == nil && id == at {
			s.Netns = ns
			return s, nil
		}
	}

	return s, errors.New("not in a namespace of the lab")
}

// Freeze stops a process and its group by SIGSTOP. The returned function continues them.
func (l *Lab) Freeze(name string) (thaw func() error, err error) {
	p, err := l.Process(name)
	if err != nil {
		return nil, err
	}

	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("freeze %s: %w", name, err)
	}

	return func() error { return p.Signal(syscall.SIGCONT) }, nil
}

// Netns returns the name under /run/netns of a host for Exec.
func (l *Lab) Netns(on string) (string, error) {
	h, err := l.host(on)
	return h.netns, err
}

// disks mounts small file systems for nodes, databases and etcd.
func (l *Lab) disks() error {
	if l.opts.Disk == "" {
		return nil
	}

	dirs := []string{"central", "kube"}
	for _, n := range l.Nodes() {
		dirs = append(dirs, filepath.Base(n.RunDir))
	}

	for _, v := range l.machines() {
		dirs = append(dirs, v.Name)
	}

	for _, name := range dirs {
		dir := l.path(name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}

		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,size="+l.opts.Disk); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
		}
	}

	return nil
}

// FillDisk fills the directory of a node, "central" or "kube", which Options.Disk has put on
// separate file systems. The returned function frees the space.
func (l *Lab) FillDisk(of string) (free func() error, err error) {
	if l.opts.Disk == "" {
		return nil, fmt.Errorf("fill disk of %s: not a separate file system", of)
	}

	file := filepath.Join(l.path(of), "filler")

	f, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("fill disk of %s: %w", of, err)
	}
	defer f.Close()

	for chunk := make([]byte, 64<<10); len(chunk) > 0; {
		n, err := f.Write(chunk)
		switch {
		case errors.Is(err, unix.ENOSPC) && n == 0:
			chunk = chunk[:len(chunk)/2]
		case err != nil && !errors.Is(err, unix.ENOSPC):
			return nil, errors.Join(fmt.Errorf("fill disk of %s: %w", of, err), os.Remove(file))
		}
	}

	return func() error { return os.Remove(file) }, nil
}

// UnplugNode deletes the uplink of a node. PlugNode restores it with the same MAC, addresses and
// routes, as a network manager does.
func (l *Lab) UnplugNode(i int) error { return unplug(l.fabric(), l.Node(i).Name) }

// PlugNode undoes UnplugNode.
func (l *Lab) PlugNode(i int, mac []byte) error {
	n := l.Node(i)
	if err := l.plugNode(n); err != nil {
		return err
	}

	if err := l.setMAC(n, mac); err != nil {
		return err
	}

	return l.addressNode(n)
}
