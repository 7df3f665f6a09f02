package lab

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
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

// socketDrops is the number of dropped packets in the memory statistics of ss(8), and lockDrops in the
// counters of ovs-vswitchd.
var (
	socketDrops = regexp.MustCompile(`skmem:\(.*,d(\d+)\)`)
	lockDrops   = regexp.MustCompile(`datapath_drop_lock_error .* total: (\d+)`)
)

// Dropped returns the number of packets that the nodes' userspace datapaths have dropped, which they do
// on a busy machine. Their sockets drop packets that ovs-vswitchd does not read in time, and it drops
// the first packets of a flow while another thread changes flows.
func (l *Lab) Dropped(ctx context.Context) (sum int, err error) {
	for _, n := range l.Nodes() {
		sockets, err := l.Exec(ctx, n.Name, "ss", "-H", "-0", "-n", "-m")
		if err != nil {
			return 0, err
		}

		locks, err := l.Exec(ctx, n.Name, "ovs-appctl", "-t", "ovs-vswitchd", "coverage/show")
		if err != nil {
			return 0, err
		}

		found := socketDrops.FindAllStringSubmatch(string(sockets), -1)
		for _, m := range append(found, lockDrops.FindAllStringSubmatch(string(locks), -1)...) {
			count, err := strconv.Atoi(m[1])
			if err != nil {
				return 0, fmt.Errorf("read dropped packets of %s: %w", n.Name, err)
			}

			sum += count
		}
	}

	return sum, nil
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
