package lab

import (
	"os"
	"os/exec"
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

// vswitchdWrapper runs ovs-vswitchd with CLOCK_MONOTONIC far from zero: version 3.1, started within
// 10 s of boot, never gets an upcall handler and loses every packet that misses the flow table.
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
