package nicbridge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// TestMain also serves as the process of a minion's agent.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "minion" {
		fmt.Fprintln(os.Stderr, runMinion(os.Args[2], os.Args[3], os.Args[4]))
		os.Exit(1)
	}

	nicbridge.Main(m)
}

// TestMinion moves the NIC of a node with an agent that has no gateway. The agent leaves the bridge
// unchanged during and after its creation, even if either process is killed at any step. The host
// always answers.
func TestMinion(t *testing.T) {
	r := nicbridge.NewRig(t)
	m := startMinion(t, r)
	m.await(t, "ready at first")
	r.Note(t)
	t.Setenv(nicbridge.AskedEnv, "yes")
	t.Run("the mover is killed at each step", func(t *testing.T) {
		for kill := 1; ; kill += nicbridge.Stride() {
			if r.Mover(t, "move", kill) {
				break
			}

			r.Same(t, fmt.Sprintf("mover killed before change %d", kill))
			m.await(t, "ready after it")
		}

		m.settled(t, r)

		if !r.Mover(t, "restore", 0) {
			t.Fatal("bridges-to-nics failed")
		}

		r.Same(t, "restored")
	})
	t.Run("the agent is killed at each step", func(t *testing.T) {
		for kill := 1; ; kill += nicbridge.Stride() {
			victim := m.pid()
			t.Setenv(nicbridge.VictimEnv, strconv.Itoa(victim))

			if !r.Mover(t, "move", kill) {
				t.Fatal("the mover was killed")
			}

			t.Setenv(nicbridge.VictimEnv, "")

			if err := r.Moved(); err != nil {
				t.Fatalf("agent killed before change %d: %v", kill, err)
			}

			killed := m.pid() != victim
			m.settled(t, r)

			if !r.Mover(t, "restore", 0) {
				t.Fatal("bridges-to-nics failed")
			}

			r.Same(t, fmt.Sprintf("agent killed before change %d, and all restored", kill))

			if !killed {
				break
			}
		}
	})
}

// minion is the process of an agent without a gateway. It is restarted whenever it ends, as by a
// unit or a DaemonSet.
type minion struct {
	state string // file: its process, and what is missing
	mu    sync.Mutex
	cmd   *exec.Cmd
	over  bool
}

func startMinion(t *testing.T, r *nicbridge.Rig) *minion {
	t.Helper()

	m := &minion{state: filepath.Join(r.Dir(), "minion")}

	log, err := os.Create(filepath.Join(r.Dir(), "minion.log"))
	if err != nil {
		t.Fatal(err)
	}

	again := func() error {
		m.mu.Lock()
		defer m.mu.Unlock()

		if m.over {
			return errors.New("over")
		}

		m.cmd = exec.Command("/proc/self/exe", "minion", r.Dir(), r.OVSDB(), r.OVSDir())
		m.cmd.Stdout, m.cmd.Stderr = log, log

		return m.cmd.Start()
	}
	if err := again(); err != nil {
		t.Fatal(err)
	}

	ended := make(chan struct{})
	go func() {
		defer close(ended)

		for {
			_ = m.cmd.Wait()

			if again() != nil {
				return
			}
		}
	}()

	t.Cleanup(func() {
		m.mu.Lock()
		m.over = true
		_ = m.cmd.Process.Kill()
		m.mu.Unlock()
		<-ended

		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("the agent said:\n%s", said)
		}

		_ = syscall.Unmount(filepath.Join(r.Dir(), "bpf"), 0)
	})

	return m
}

func (m *minion) pid() int {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.cmd.Process.Pid
}

// await waits until the running agent reports no fault.
func (m *minion) await(t *testing.T, what string) {
	t.Helper()
	testnode.Eventually(t, "the agent is "+what, func() error {
		b, err := os.ReadFile(m.state)
		if err == nil && strings.TrimSpace(string(b)) != strconv.Itoa(m.pid()) {
			err = fmt.Errorf("%d: %s", m.pid(), b)
		}

		return err
	})
}

// settled restarts the agent. When it is ready it has read the whole node: the move stays.
func (m *minion) settled(t *testing.T, r *nicbridge.Rig) {
	t.Helper()
	m.await(t, "ready after the move")

	before := m.pid()
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	testnode.Eventually(t, "another agent", func() error {
		if m.pid() == before {
			return errors.New("not yet")
		}

		return nil
	})
	m.await(t, "ready when it is started after the move")

	if err := r.Moved(); err != nil {
		t.Errorf("the agent undid the move: %v", err)
	}
}

// runMinion is the agent's part for uplink and bridge.
func runMinion(dir, ovsdb, ovsDir string) error {
	ctx := context.Background()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))

	for gateway.Moving(dir) != nil {
		time.Sleep(20 * time.Millisecond)
	}

	c, err := ovs.Dial(ctx, ovsdb)
	if err != nil {
		return err
	}

	s := gateway.Settings{
		Wiring: gateway.Wiring{Uplink: nicbridge.NICName, Bridge: nicbridge.BridgeName, Layout: verdict.Direct, Backend: gateway.EBPF},
		Cluster: gateway.Cluster{
			SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, NoGateway: true,
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		},
		PinDir: filepath.Join(dir, "bpf/node"), RunDir: dir, OVSRunDir: ovsDir, NotHost: []string{nicbridge.BridgeName},
	}
	if err := os.MkdirAll(filepath.Join(dir, "bpf"), 0o700); err != nil {
		return err
	}

	for gateway.Recover(ctx, s, c) != nil {
		time.Sleep(20 * time.Millisecond)
	}

	g := gateway.New(gateway.Options{
		Settings: s, OVS: c, Changed: func() {}, Log: log,
		Source: gateway.Source{
			Node: "node1", Keys: func() ([]service.Key, bool) { return nil, true }, Zone: func() string { return "" }, Nodes: func() int { return 1 },
			Objects: func(service.Key) service.Objects { return service.Objects{} }, Peers: func() (known, hosts []netip.Addr) { return nil, nil },
		},
	})
	g.Inputs().SetInSync(true)

	go func() {
		path := filepath.Join(dir, "minion")

		for ; ; time.Sleep(20 * time.Millisecond) {
			line := strconv.Itoa(os.Getpid()) + " " + g.View().Missing()
			if os.WriteFile(path+".new", []byte(strings.TrimSpace(line)), 0o600) == nil {
				_ = os.Rename(path+".new", path)
			}
		}
	}()

	return g.Run(ctx)
}
