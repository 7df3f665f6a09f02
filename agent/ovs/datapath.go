package ovs

import (
	"fmt"
	"os"
	"os/exec"
)

// Datapath types of OVS.
const (
	DatapathSystem = "system" // the kernel's
	DatapathNetdev = "netdev" // in vswitchd, fed by AF_PACKET and tap
)

// DetectDatapath returns DatapathSystem where the kernel has openvswitch
// (loading the module where that is possible), else DatapathNetdev, and why.
// genlFamily reports whether a generic netlink family exists; it also finds
// an openvswitch that is built in.
func DetectDatapath(genlFamily func(string) bool) (datapath, reason string) {
	const family = "ovs_datapath"
	if genlFamily(family) {
		return DatapathSystem, "the kernel has openvswitch"
	}
	modprobe, err := exec.LookPath("modprobe")
	if err != nil {
		return DatapathNetdev, "the kernel has no openvswitch loaded, and there is no modprobe"
	}
	out, err := exec.Command(modprobe, "openvswitch").CombinedOutput()
	if genlFamily(family) {
		return DatapathSystem, "the kernel has openvswitch (loaded now)"
	}
	if _, statErr := os.Stat("/sys/module/openvswitch"); statErr == nil {
		return DatapathSystem, "the kernel has the module openvswitch"
	}
	return DatapathNetdev, fmt.Sprintf("the kernel has no openvswitch (modprobe: %v %q)", err, firstLine(out))
}

func firstLine(b []byte) string {
	for i, c := range b {
		if c == '\n' {
			return string(b[:i])
		}
	}
	return string(b)
}
