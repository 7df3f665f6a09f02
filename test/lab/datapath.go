package lab

import (
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// detectDatapath returns "system" where the kernel has openvswitch, or can load
// it, else "netdev", and why.
func detectDatapath() (datapath, reason string) {
	if !hasKernelDatapath() {
		// Either it is not there or we may not load it: netdev then.
		_ = exec.Command("modprobe", "openvswitch").Run()
		_ = exec.Command("modprobe", "vport-geneve").Run()
	}
	if hasKernelDatapath() {
		return "system", "the kernel has openvswitch"
	}
	return "netdev", "the kernel has no openvswitch"
}

// KernelDatapath says whether a lab that is not told otherwise has the kernel's datapath.
func KernelDatapath() bool {
	datapath, _ := detectDatapath()
	return datapath == "system"
}

func hasKernelDatapath() bool {
	_, err := netlink.GenlFamilyGet("ovs_datapath")
	return err == nil
}

// vswitchdWrapper runs ovs-vswitchd where CLOCK_MONOTONIC is far from zero:
// version 3.1 started before 10 s of uptime never gets an upcall handler, and
// loses every packet that misses the flow table.
func vswitchdWrapper() []string {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return nil
	}
	up, err := strconv.ParseFloat(strings.Fields(string(b))[0], 64)
	if err != nil || up >= 12 {
		return nil
	}
	return []string{"unshare", "--time", "--monotonic", "1000", "--fork", "--kill-child", "--"}
}
