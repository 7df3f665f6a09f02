// Package testnode gives a test its own node: network, mount and process namespaces that end with
// the test process, and a real Open vSwitch with the userspace datapath.
package testnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
	"github.com/ovn-ebpf/ovn-ebpf/test/vm/clock"
)

// Main runs the tests of a package in their own namespaces (test/tether), with the platform's Open
// vSwitch in PATH, and returns the exit code. It needs root. TestMain calls it:
//
//	func TestMain(m *testing.M) { os.Exit(testnode.Main(m)) }
func Main(m interface{ Run() int }) int {
	if !Inside() {
		if err := platform.Default(os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}

	return tether.RunIsolated(m.Run)
}

// Inside reports whether the process runs in the namespaces of Main, which starts the test's
// program twice: outside, and then inside. Work that needs the machine's network must be done
// outside.
func Inside() bool { return tether.Isolated() }

// Run runs a command and fails the test with its output if it fails.
func Run(t testing.TB, argv ...string) string {
	t.Helper()

	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}

	return string(out)
}

// Switch is a private Open vSwitch of a test. Its methods fail the test on errors.
type Switch struct {
	Dir     string // of all its files; also the run directory
	Address string // of the database

	server   *exec.Cmd // ovsdb-server
	vswitchd *exec.Cmd // nil without ovs-vswitchd
}

// StartSwitch starts ovsdb-server and, optionally, vswitchd. They end with the test.
func StartSwitch(t testing.TB, vswitchd bool) *Switch {
	t.Helper()

	dir, err := os.MkdirTemp("", "ovs") // t.TempDir is too long for a unix socket
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })

	if vswitchd && Inside() {
		t.Cleanup(removeTaps)
	}

	s := &Switch{Dir: dir, Address: "unix:" + dir + "/db.sock"}
	Run(t, "ovsdb-tool", "create", dir+"/conf.db", platform.OVSFile("vswitch.ovsschema"))
	s.startServer(t)
	Run(t, "ovs-vsctl", "--db="+s.Address, "--no-wait", "init")

	if vswitchd {
		s.StartVswitchd(t)
	}

	return s
}

// removeTaps removes the devices of the userspace datapath from the test's network namespace, with
// their addresses. They are persistent, so they outlive ovs-vswitchd, and the next test would find
// them.
func removeTaps() {
	taps := exec.Command("ip", "-o", "link", "show", "type", "tun")

	out, _ := taps.Output() // fails only with the test's namespaces
	for line := range strings.Lines(string(out)) {
		if _, rest, ok := strings.Cut(line, ": "); ok {
			name, _, _ := strings.Cut(rest, ":")
			_ = exec.Command("ip", "link", "del", name).Run()
		}
	}
}

func (s *Switch) startServer(t testing.TB) {
	t.Helper()
	s.server = s.start(t, filepath.Join(s.Dir, "db.sock"), "ovsdb-server", "--log-file="+s.Dir+"/ovsdb.log",
		"-vconsole:off", "--unixctl="+s.Dir+"/ovsdb.ctl", "--remote=punix:"+s.Dir+"/db.sock",
		s.Dir+"/conf.db")
}

// RestartServer kills ovsdb-server, calls meanwhile, and starts it again.
func (s *Switch) RestartServer(t testing.TB, meanwhile func()) {
	t.Helper()
	s.KillServer()
	meanwhile()
	s.StartServer(t)
}

// KillServer kills ovsdb-server with SIGKILL and waits for its end.
func (s *Switch) KillServer() { kill(s.server) }

// StartServer starts ovsdb-server again.
func (s *Switch) StartServer(t testing.TB) {
	t.Helper()
	os.Remove(s.Dir + "/db.sock")
	s.startServer(t)
}

// StartVswitchd starts ovs-vswitchd.
func (s *Switch) StartVswitchd(t testing.TB) {
	t.Helper()

	if err := clock.Await(t.Context()); err != nil {
		t.Fatal(err)
	}

	os.Remove(s.Dir + "/vswitchd.ctl")
	s.vswitchd = s.start(t, filepath.Join(s.Dir, "vswitchd.ctl"), "ovs-vswitchd",
		"--log-file="+s.Dir+"/vswitchd.log", "-vconsole:off", "--unixctl="+s.Dir+"/vswitchd.ctl", s.Address)
}

// Daemon creates the pid file and the control socket's name by which the agent finds an
// ovs-vswitchd that runs as a daemon. Switch starts it without --pidfile.
func (s *Switch) Daemon(t testing.TB) {
	t.Helper()

	err := errors.Join(os.WriteFile(s.Dir+"/ovs-vswitchd.pid", []byte("1\n"), 0o600),
		os.Symlink("vswitchd.ctl", s.Dir+"/ovs-vswitchd.1.ctl"))
	if err != nil {
		t.Fatal(err)
	}
}

// ZeroSNAT returns the database's value of the userspace datapath's capability ct_zero_snat.
func (s *Switch) ZeroSNAT(t testing.TB) string {
	t.Helper()
	uuid := strings.TrimSpace(s.Vsctl(t, "get", "Open_vSwitch", ".", "datapaths:netdev"))

	value := s.Vsctl(t, "--if-exists", "get", "Datapath", uuid, "capabilities:ct_zero_snat")

	return strings.Trim(value, "\"\n")
}

// AvoidedZeroSNAT returns the value that ZeroSNAT has after ovs.Client.AvoidNullNAT: "false" before
// Open vSwitch 3.3, which needs it, and "true" from then on.
func AvoidedZeroSNAT(t testing.TB) string {
	t.Helper()
	version := Run(t, "ovs-vswitchd", "--version")

	var major, minor int

	_, number, _ := strings.Cut(version, "(Open vSwitch) ")
	if _, err := fmt.Sscanf(number, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("version %q: %v", version, err)
	}

	t.Logf("Open vSwitch %d.%d", major, minor)

	if major < 3 || major == 3 && minor < 3 {
		return "false"
	}

	return "true"
}

// ReportDatapath makes ovs-vswitchd write the capabilities of its userspace datapath, as
// ovn-controller does.
func (s *Switch) ReportDatapath(t testing.TB) {
	t.Helper()
	s.Vsctl(t, "--id=@d", "create", "Datapath", `datapath_version=""`,
		"--", "set", "Open_vSwitch", ".", "datapaths:netdev=@d")
}

// KillVswitchd kills ovs-vswitchd with SIGKILL and waits for its end.
func (s *Switch) KillVswitchd() {
	kill(s.vswitchd)
}

// HoldVswitchd stops ovs-vswitchd until release is called, as on an overloaded machine.
func (s *Switch) HoldVswitchd(t testing.TB) (release func()) {
	t.Helper()

	signal := func(sig syscall.Signal) {
		if err := s.vswitchd.Process.Signal(sig); err != nil {
			t.Error(err)
		}
	}
	signal(syscall.SIGSTOP)

	return func() { signal(syscall.SIGCONT) }
}

// kill kills the process, if it still runs, and waits for its end.
func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// Netns starts a process in a new network namespace and returns its process ID. The process ends
// with the test.
func Netns(t testing.TB) (pid string) {
	t.Helper()

	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}

	if err := cmd.Start(); err != nil {
		t.Fatalf("start process in a network namespace: %v", err)
	}

	t.Cleanup(func() { kill(cmd) })

	return strconv.Itoa(cmd.Process.Pid)
}

// Vsctl runs ovs-vsctl on the database, without waiting for vswitchd.
func (s *Switch) Vsctl(t testing.TB, args ...string) string {
	t.Helper()
	return Run(t, append([]string{"ovs-vsctl", "--db=" + s.Address, "--no-wait"}, args...)...)
}

// start starts a program of the Switch, and returns when the program listens at the socket ready.
// The program ends with the test.
func (s *Switch) start(t testing.TB, ready string, argv ...string) *exec.Cmd {
	t.Helper()

	cmd := exec.Command(argv[0], argv[1:]...)

	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+s.Dir, "OVS_DBDIR="+s.Dir, "OVS_LOGDIR="+s.Dir)

	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", argv[0], err)
	}

	t.Cleanup(func() { kill(cmd) })
	Eventually(t, argv[0]+" listens", func() error {
		c, err := net.Dial("unix", ready)
		if err == nil {
			c.Close()
		}

		return err
	})

	return cmd
}

// Background runs a function until stop is called or the test ends. It fails the test if the
// function returns an error. The function must return nil after its context has ended.
func Background(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))

	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()

	stop = sync.OnceFunc(func() {
		cancel()

		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)

	return stop
}

// Eventually calls check until it returns nil, and fails the test if that takes longer than half a
// minute. The limit detects faults; it does not measure speed. what describes the expected state in
// the failure.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	const most = 10 * time.Millisecond
	for pause := most / 16; ; pause = min(2*pause, most) {
		err := check()
		if err == nil {
			return
		}

		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(pause):
		}
	}
}
