package nicbridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

const (
	nicName    = "nic0"
	bridgeName = "brnic0"
	ovsdbEnv   = "NICBRIDGE_OVSDB"
	victimEnv  = "NICBRIDGE_VICTIM" // process that a mover kills; "": itself
	askedEnv   = "NICBRIDGE_ASKED"  // the move is an operator's
)

// Main also serves as the watchdog's process, and as a mover that is killed or kills another
// process.
func Main(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "nic-watchdog":
			os.Exit(exit(Watch(context.Background(), os.Args[2:], dial, slog.New(slog.NewTextHandler(os.Stderr, nil)))))
		case "owner":
			fmt.Println(findOwner("/", os.Args[2], 1))
			os.Exit(0)
		case "mover":
			os.Exit(exit(runMover(os.Args[2], os.Args[3], os.Args[4])))
		}
	}

	os.Exit(testnode.Main(m))
}

func exit(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return 0
}

// runMover moves or restores, and kills itself before the change with that number.
func runMover(dir, what, at string) error {
	kill, err := strconv.Atoi(at)
	if err != nil {
		return err
	}

	o, err := options(dir)
	if err != nil {
		return err
	}

	step := 0

	o.hook = func(string) error {
		if step++; step != kill {
			return nil
		}

		victim := os.Getpid()
		if other := os.Getenv(victimEnv); other != "" {
			if victim, err = strconv.Atoi(other); err != nil {
				return err
			}
		}

		return syscall.Kill(victim, syscall.SIGKILL)
	}
	if what == "restore" {
		return Restore(context.Background(), o)
	}

	return Move(context.Background(), o)
}

func options(dir string) (Options, error) {
	sw, err := dial(context.Background())

	return Options{
		NIC: nicName, Bridge: bridgeName, Dir: dir, Switch: sw, Watchdog: []string{"/proc/self/exe", "nic-watchdog"},
		Asked: os.Getenv(askedEnv) != "",
	}, err
}

func dial(ctx context.Context) (Switch, error) {
	c, err := ovs.Dial(ctx, os.Getenv(ovsdbEnv))
	if err != nil {
		return nil, err
	}

	if kernelDatapath() {
		return ovs.HostSwitch{Client: c}, nil
	}

	return stealing{ovs.HostSwitch{Client: c, DatapathType: "netdev"}}, nil
}

func kernelDatapath() bool { return link.HasGenericFamily(ovs.KernelFamily) }

// stealing makes the userspace datapath behave like the kernel's: only the bridge receives the
// NIC's frames.
type stealing struct{ ovs.HostSwitch }

func (s stealing) AddPort(ctx context.Context, bridge, device string) error {
	if err := s.HostSwitch.AddPort(ctx, bridge, device); err != nil {
		return err
	}

	return nft("add table netdev steal; add chain netdev steal in { type filter hook ingress device " + device + " priority 0; policy drop; }")
}

func (s stealing) Remove(ctx context.Context, bridge, device string) error {
	return errors.Join(nft("add table netdev steal; delete table netdev steal"), s.HostSwitch.Remove(ctx, bridge, device))
}

func nft(script string) error {
	if out, err := exec.Command("nft", script).CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}

	return nil
}
