package main

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// asProgram in the environment makes the test binary act as ovnkube.
const asProgram = "OVNKUBE_TEST_PROGRAM"

// TestNICsToBridgeKilled runs nics-to-bridge and bridges-to-nics in turn and kills them at random
// points. A connection from outside must survive. In the end, the host must be unchanged. It runs
// 50 rounds. With -short it runs four, and more until one command was killed.
func TestNICsToBridgeKilled(t *testing.T) {
	sw, before := startHost(t)
	flags := moverFlags(sw)
	live := connect(t)
	random := rand.New(rand.NewPCG(randomtest.Seed(t), 0))

	const most = 50

	rounds := most
	if testing.Short() {
		rounds = 4
	}

	var whole [2]time.Duration // duration of an undisturbed command, by direction

	var longest time.Duration

	kills := 0

	done := 0
	for round := 0; round < rounds || kills == 0 && round < most; round++ {
		done++
		back := bridged(t)

		line := []string{"nics-to-bridge", "eth0"}
		if back {
			line = []string{"bridges-to-nics", "breth0"}
		}

		direction := 0
		if back {
			direction = 1
		}

		began := time.Now()
		cmd := exec.Command("/proc/self/exe", append(append([]string{"ovn-k8s-util", line[0]}, flags...), line[1])...)
		cmd.Env = append(os.Environ(), asProgram+"=1")

		var said strings.Builder

		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}

		var killed *time.Timer

		if whole[direction] > 0 { // the first of each is undisturbed
			at := time.Duration(random.Float64() * 1.1 * float64(whole[direction]))
			killed = time.AfterFunc(at, func() { _ = cmd.Process.Kill() })
		}

		err := cmd.Wait()
		took := time.Since(began)

		if killed != nil {
			killed.Stop()
		}

		var exit *exec.ExitError
		switch {
		case err == nil && whole[direction] == 0:
			whole[direction] = took
		case err == nil:
		case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
			kills++
		default:
			t.Fatalf("round %d: %v: %v: %s", round, line, err, said.String())
		}

		longest = max(longest, live.goesOn(t, fmt.Sprintf("round %d, %v after %s", round, line, took)))
	}

	t.Logf("%d rounds, %d of them killed; a move takes %s, back %s; the connection paused for at most %s", done, kills, whole[0].Round(time.Millisecond), whole[1].Round(time.Millisecond), longest.Round(time.Millisecond))

	if kills == 0 {
		t.Error("no command was killed")
	}

	if bridged(t) {
		cmd := exec.Command("/proc/self/exe", append(append([]string{"ovn-k8s-util", "bridges-to-nics"}, flags...), "breth0")...)

		cmd.Env = append(os.Environ(), asProgram+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}

	testnode.Eventually(t, "as before", func() error {
		if got := hostState(t); got != before {
			return fmt.Errorf("before:\n%safter:\n%s", before, got)
		}

		if got := sw.Vsctl(t, "--columns=name", "list", "Bridge") + sw.Vsctl(t, "--columns=name", "list", "Interface"); got != "" {
			return fmt.Errorf("OVS has %s", got)
		}

		return nil
	})
	live.goesOn(t, "in the end")
}

// bridged waits until the addresses are in one place, and reports whether that is the bridge.
func bridged(t *testing.T) bool {
	t.Helper()

	var on string

	testnode.Eventually(t, "the address is in one place", func() error {
		out, err := exec.Command("ip", "-o", "-4", "addr", "show", "to", "172.30.0.11").Output()
		if err != nil {
			return err
		}

		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if len(lines) != 1 || lines[0] == "" {
			return fmt.Errorf("%q", lines)
		}

		if watchdogs(t) > 0 { // it may still restore the NIC
			return errors.New("a watchdog is running")
		}

		on = strings.Fields(lines[0])[1]

		return nil
	})

	return on == "breth0"
}

// watchdogs counts the watchdog processes in this namespace.
func watchdogs(t *testing.T) int {
	t.Helper()

	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}

	dirs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}

	n := 0

	for _, d := range dirs {
		argv, err := os.ReadFile("/proc/" + d.Name() + "/cmdline")

		ns, nsErr := os.Readlink("/proc/" + d.Name() + "/ns/net")
		if err == nil && nsErr == nil && ns == ours && slices.Contains(strings.Split(string(argv), "\x00"), watchdogCommand) {
			n++
		}
	}

	return n
}

// connection is a TCP connection from outside to the host with constant echo traffic.
type connection struct{ last atomic.Int64 }

// connect opens the connection from the other end of the wire.
func connect(t *testing.T) *connection {
	t.Helper()

	l, err := net.Listen("tcp", "172.30.0.11:7000")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { l.Close() })

	c := &connection{}
	over := make(chan error, 1)

	go func() {
		conn, err := l.Accept()
		if err != nil {
			over <- err
			return
		}
		defer conn.Close()

		for lines := bufio.NewScanner(conn); lines.Scan(); {
			c.last.Store(time.Now().UnixNano())

			if _, err := fmt.Fprintln(conn, lines.Text()); err != nil {
				over <- err
				return
			}
		}

		over <- errors.New("closed")
	}()

	peer := exec.Command("nsenter", "-t", peerPID, "-n", "bash", "-c", `exec 3<>/dev/tcp/172.30.0.11/7000; while echo x >&3 && read -r -t 100 -u 3 _; do sleep 0.02; done`)
	if err := peer.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		select {
		case err := <-over:
			t.Errorf("the connection ended: %v", err)
		default:
		}

		_ = peer.Process.Kill()
		_ = peer.Wait()
	})

	return c
}

// goesOn waits for the next line and returns the time that it took.
func (c *connection) goesOn(t *testing.T, when string) time.Duration {
	t.Helper()

	began := time.Now()

	testnode.Eventually(t, when+": the connection goes on", func() error {
		if c.last.Load() < began.UnixNano() {
			return errors.New("no new line")
		}

		return nil
	})

	return time.Since(began)
}

// moverFlags point a mover to the test's OVS.
func moverFlags(sw *testnode.Switch) []string {
	return []string{"--ovsdb", sw.Address, "--datapath", "netdev", "--run-dir", sw.Dir + "/run", "--pin-dir", sw.Dir + "/bpf/node"}
}

// peerPID is the ID of a process in the namespace at the other end of the wire.
var peerPID string

// startHost creates a host with a NIC and its peer.
func startHost(t *testing.T) (*testnode.Switch, string) {
	t.Helper()
	sw := testnode.StartSwitch(t, true)
	peerPID = testnode.Netns(t)
	testnode.Run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", peerPID)
	// The kernel ends the peer's namespace, and with it the wire, some time after the test. The next
	// test creates an eth0 too.
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "eth0").Run() })
	testnode.Run(t, "ip", "addr", "add", "172.30.0.11/24", "dev", "eth0")
	testnode.Run(t, "ip", "addr", "add", "fd00:172:30::11/64", "dev", "eth0", "nodad")
	testnode.Run(t, "ip", "link", "set", "eth0", "up")

	onPeer := []string{"nsenter", "-t", peerPID, "-n"}
	testnode.Run(t, append(onPeer, "ip", "addr", "add", "172.30.0.200/24", "dev", "eth0")...)
	testnode.Run(t, append(onPeer, "ip", "link", "set", "eth0", "up")...)
	testnode.Run(t, "ip", "route", "add", "default", "via", "172.30.0.200", "metric", "50")
	testnode.Run(t, "ip", "rule", "add", "pref", "100", "to", "198.51.100.0/24", "lookup", "100")
	t.Cleanup(func() { testnode.Run(t, "ip", "rule", "del", "pref", "100") }) // rules belong to no device and would outlive the test
	testnode.Run(t, "ip", "neigh", "add", "172.30.0.77", "lladdr", "02:00:00:00:00:77", "dev", "eth0", "nud", "permanent")

	if err := os.MkdirAll(sw.Dir+"/run", 0o755); err != nil {
		t.Fatal(err)
	}
	// The kernel adds the route of an IPv6 address slightly later than the address.
	testnode.Eventually(t, "the IPv6 address has its route", func() error {
		out := testnode.Run(t, "ip", "-6", "route", "show", "table", "local", "type", "local", "to", "fd00:172:30::11")
		if !strings.Contains(out, "fd00:172:30::11") {
			return fmt.Errorf("local routes: %q", out)
		}

		return nil
	})

	return sw, hostState(t)
}
