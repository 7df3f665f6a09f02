package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// tool is a program that the VM's runner or the harness starts, and its package in Debian. The
// guest uses the host's files, so all tools must be installed here.
type tool struct{ name, pkg string }

func tools() []tool {
	return []tool{
		{"qemu-system-x86_64", "qemu-system-x86"},
		{"busybox", "busybox-static"},
		{"cpio", "cpio"},
		{"modprobe", "kmod"},
		{"ip", "iproute2"},
		{"nft", "nftables"},
		{"ovs-vsctl", "openvswitch-switch"},
		{"ovs-vswitchd", "openvswitch-switch"},
		{"ovsdb-server", "openvswitch-switch"},
		{"ovs-ofctl", "openvswitch-common"},
		{"ovsdb-tool", "openvswitch-common"},
		{"ovn-northd", "ovn-central"},
		{"ovn-nbctl", "ovn-common"},
		{"ovn-controller", "ovn-host"},
	}
}

// missing returns an error that names the packages of the missing tools, or nil.
func missing(want []tool, look func(string) (string, error)) error {
	var names, pkgs []string

	for _, t := range want {
		if _, err := look(t.name); err != nil {
			names, pkgs = append(names, t.name), append(pkgs, t.pkg)
		}
	}

	if len(names) == 0 {
		return nil
	}

	slices.Sort(pkgs)

	return fmt.Errorf("find %s: not in PATH (apt-get install %s)", strings.Join(names, ", "), strings.Join(slices.Compact(pkgs), " "))
}

func checkTools() error { return missing(tools(), exec.LookPath) }
