package nicbridge

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
)

// dump returns the kernel's messages of one kind, without struct nlmsghdr. get is RTM_GET…, and
// header is the length of the message's fixed part.
func dump(get, header int) ([][]byte, error) {
	const newBefore = 2 // RTM_NEW… is RTM_GET… - 2

	for try := 0; ; try++ {
		req := nl.NewNetlinkRequest(get, unix.NLM_F_DUMP)
		req.AddRawData(make([]byte, header))

		out, err := req.Execute(unix.NETLINK_ROUTE, uint16(get-newBefore))
		if errors.Is(err, netlink.ErrDumpInterrupted) && try < 10 {
			continue
		}

		return out, err
	}
}

// send makes one change. It is not an error if the change is already done: if a new object exists,
// or an object to delete does not. kind is RTM_NEW… or RTM_DEL…. flags are those of struct
// nlmsghdr; for deletions they are 0.
func send(kind, flags int, msg []byte) error {
	req := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	req.AddRawData(msg)

	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	switch {
	case flags&unix.NLM_F_CREATE != 0 && errors.Is(err, syscall.EEXIST):
		return nil
	case flags == 0 && (errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.ENOENT) ||
		errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.ENODEV)):
		return nil
	}

	return err
}

// addrsOf returns the addresses of a device.
func addrsOf(index int) ([][]byte, error) {
	all, err := dump(unix.RTM_GETADDR, addrHeader)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}

	var out [][]byte

	for _, m := range all {
		if len(m) >= addrHeader && int(order.Uint32(m[indexAt:])) == index {
			out = append(out, m)
		}
	}

	return out, nil
}

// routes returns all routes of both families in all tables except cloned ones, in the kernel's
// order.
func routes() ([]route, error) {
	all, err := dump(unix.RTM_GETROUTE, routeHeader)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}

	var out []route

	for _, m := range all {
		r, err := parseRoute(m)
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}

		if !r.cloned && (r.family == unix.AF_INET || r.family == unix.AF_INET6) {
			out = append(out, r)
		}
	}

	return out, nil
}

// rulesNaming returns the routing rules for packets from or to a device.
func rulesNaming(device string) ([][]byte, error) {
	all, err := dump(unix.RTM_GETRULE, ruleHeader)
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}

	var out [][]byte

	for _, m := range all {
		list, err := attrs(m, ruleHeader)
		if err != nil {
			return nil, fmt.Errorf("list rules: %w", err)
		}

		if cstring(find(list, fraIIFName)) == device || cstring(find(list, fraOIFName)) == device {
			out = append(out, m)
		}
	}

	return out, nil
}

// neighsOf returns the neighbours on a device that have a link-layer address, from ARP, neighbour
// discovery or a static entry.
func neighsOf(index int) ([][]byte, error) {
	all, err := dump(unix.RTM_GETNEIGH, neighHeader)
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}

	var out [][]byte

	for _, m := range all {
		if len(m) < neighHeader || int(order.Uint32(m[indexAt:])) != index {
			continue
		}

		if m[familyAt] != unix.AF_INET && m[familyAt] != unix.AF_INET6 {
			continue
		}

		list, err := attrs(m, neighHeader)
		if err != nil {
			return nil, fmt.Errorf("list neighbours: %w", err)
		}

		if find(list, unix.NDA_LLADDR) != nil &&
			neighbourState(m)&(unix.NUD_NOARP|unix.NUD_FAILED|unix.NUD_INCOMPLETE) == 0 {
			out = append(out, m)
		}
	}

	return out, nil
}

// Names and numbers of linux/openvswitch.h.
const (
	vportFamily   = "ovs_vport"
	vportVersion  = 1
	vportDelete   = 2 // OVS_VPORT_CMD_DEL
	vportAttrName = 3 // OVS_VPORT_ATTR_NAME
)

// deleteVport removes a device from the kernel datapath, like ovs-dpctl del-if. datapath is the
// interface index of the datapath's device.
func deleteVport(datapath int, device string) error {
	family, err := netlink.GenlFamilyGet(vportFamily)
	if err != nil {
		return fmt.Errorf("find generic netlink family %s: %w", vportFamily, err)
	}

	req := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	req.AddData(&nl.Genlmsg{Command: vportDelete, Version: vportVersion})
	req.AddRawData(build(put32(uint32(datapath)), []attr{{vportAttrName, []byte(device + "\x00")}}))

	if _, err := req.Execute(unix.NETLINK_GENERIC, 0); err != nil && !errors.Is(err, syscall.ENODEV) {
		return err
	}

	return nil
}

// readSysctls returns the per-interface settings, by names like "ipv4/rp_filter". It skips
// unreadable ones, such as an unset secret.
func readSysctls(device string) map[string]string {
	out := map[string]string{}

	for _, family := range []string{"ipv4", "ipv6"} {
		entries, _ := os.ReadDir(filepath.Join("/proc/sys/net", family, "conf", device))
		for _, e := range entries {
			if v, err := link.ReadSysctl("net/" + family + "/conf/" + device + "/" + e.Name()); err == nil {
				out[family+"/"+e.Name()] = v
			}
		}
	}

	return out
}

// differingSettings returns the names of the settings of want that differ from have, sorted. It
// skips settings that have lacks, and special ones.
func differingSettings(want, have map[string]string) []string {
	var out []string

	for _, k := range slices.Sorted(maps.Keys(want)) {
		if v, ok := have[k]; ok && v != want[k] && !isSpecial(filepath.Base(k)) {
			out = append(out, k)
		}
	}

	return out
}

// isSpecial reports whether a setting must not be copied like the others: it has its own step in a
// move, at a specific position, or depends on the device.
func isSpecial(name string) bool {
	switch name {
	case "disable_ipv6", "addr_gen_mode", "stable_secret", "mtu":
		return true
	}

	return false
}

// writeSysctl writes a setting with a name of readSysctls.
func writeSysctl(device, key, value string) error {
	return link.WriteSysctl("net/"+filepath.Dir(key)+"/conf/"+device+"/"+filepath.Base(key), value)
}
