package gateway

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// epochs is a node whose agent follows the flows of br-int.
type epochs struct {
	*rig
	target string // of ovs-ofctl
}

func startEpochs(t *testing.T) *epochs {
	t.Helper()
	r, p, gw := newShortcutManager(t)
	p.usePrograms(gw)
	testnode.Background(t, p.Run)

	e := &epochs{rig: r, target: "unix:" + filepath.Join(r.sw.Dir, ovs.IntegrationBridge+".mgmt")}

	testnode.Eventually(t, "flows that are read", func() error {
		if s := p.record.read().Shortcuts; s == nil || len(s.Causes) > 0 {
			return fmt.Errorf("%+v", s)
		}

		return nil
	})

	return e
}

// change applies changes of flows, one per line.
func (e *epochs) change(flows string) {
	e.t.Helper()
	cmd := exec.Command("ovs-ofctl", "add-flows", e.target, "-")

	cmd.Stdin = strings.NewReader(flows)
	if out, err := cmd.CombinedOutput(); err != nil {
		e.t.Fatalf("change flows: %v: %s", err, out)
	}
}

func (e *epochs) now() uint32 {
	e.t.Helper()

	c, err := bpf.ReadShortcutCounts(e.s.PinDir)
	if err != nil {
		e.t.Fatal(err)
	}

	return c.Epoch
}

// settled waits until the epoch has not changed for longer than a revalidation, and returns it.
func (e *epochs) settled() (epoch uint32) {
	e.t.Helper()
	epoch, since := e.now(), time.Now()
	testnode.Eventually(e.t, "an epoch that stays", func() error {
		if now := e.now(); now != epoch {
			epoch, since = now, time.Now()
		}

		if age := time.Since(since); age < revalidation+5*forgetPause {
			return fmt.Errorf("epoch %d for %s", epoch, age)
		}

		return nil
	})

	return epoch
}

// Flows that change all the time raise the epoch at most ten times per second, so that busy connections
// keep their shortcuts for most of their packets (TestForgetShortcuts_costsFewPackets in package bpf).
func TestPods_epochRisesTenTimesPerSecond(t *testing.T) {
	e := startEpochs(t)

	const each, perSecond = 200, 10

	flow := "table=14,priority=2001,ip,reg14=0x3,metadata=0x1"
	flows := strings.Repeat("add "+flow+",actions=drop\ndelete_strict "+flow+"\n", each/2)

	before, began, changes := e.settled(), time.Now(), 0
	for ; time.Since(began) < 2*time.Second; changes += each {
		e.change(flows)
	}

	raised, most := e.now()-before, uint32(perSecond*time.Since(began)/time.Second)+1
	if raised < 2 || raised > most {
		t.Errorf("%d changes in %s raised the epoch %d times, want 2 to %d times", changes, time.Since(began), raised, most)
	}

	t.Logf("%d changes in %s raised the epoch %d times", changes, time.Since(began), raised)
}
