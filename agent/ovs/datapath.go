package ovs

import (
	"context"
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

// CheckDatapath returns an error where the kernel lacks the datapath of the bridge, as it is or as
// AddBridge would make it. ovs-vswitchd reports such a bridge in its log only.
func (s HostSwitch) CheckDatapath(ctx context.Context, bridge string, genlFamily func(string) bool) error {
	datapath := s.DatapathType
	have, err := s.Client.bridge(ctx, bridge)
	if err != nil {
		return err
	}
	if have != nil {
		datapath = have.DatapathType
	}
	if datapath == DatapathNetdev {
		return nil
	}
	found, reason := DetectDatapath(genlFamily)
	if found == DatapathSystem {
		return nil
	}
	return fmt.Errorf("bridge %s: datapath type system: %s: load the module openvswitch, or use Open vSwitch's userspace datapath (--datapath netdev)", bridge, reason)
}

func firstLine(b []byte) string {
	for i, c := range b {
		if c == '\n' {
			return string(b[:i])
		}
	}
	return string(b)
}
