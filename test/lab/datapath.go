package lab

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
)

// detectDatapath returns "system" if the kernel has openvswitch, or can load it, else "netdev",
// with the reason.
func detectDatapath() (datapath, reason string) {
	if !hasKernelDatapath() {
		// On failure, use netdev.
		_ = exec.Command("modprobe", "openvswitch").Run()
		_ = exec.Command("modprobe", "vport-geneve").Run()
	}
	if hasKernelDatapath() {
		return "system", "the kernel has openvswitch"
	}
	return "netdev", "the kernel has no openvswitch"
}

// KernelDatapath reports whether a lab uses the kernel datapath by default.
func KernelDatapath() bool {
	datapath, _ := detectDatapath()
	return datapath == "system"
}

func hasKernelDatapath() bool {
	_, err := netlink.GenlFamilyGet("ovs_datapath")
	return err == nil
}

// checkUpcalls returns an error if a node's ovs-vswitchd has lost packets that the kernel datapath
// handed to it: one that started too early gets none of them.
func (l *Lab) checkUpcalls(ctx context.Context) error {
	for _, n := range l.Nodes() {
		out, err := l.Exec(ctx, n.Name, "ovs-appctl", "-t", "ovs-vswitchd", "dpctl/show")
		if err != nil {
			return fmt.Errorf("check upcalls of %s: %w", n.Name, err)
		}
		if !strings.Contains(string(out), " lost:0\n") {
			return fmt.Errorf("check upcalls of %s: ovs-vswitchd lost some: %s", n.Name, out)
		}
	}
	return nil
}
