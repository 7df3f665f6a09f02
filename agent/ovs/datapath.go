package ovs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Datapath types of OVS.
const (
	DatapathSystem = "system" // in the kernel
	DatapathNetdev = "netdev" // in ovs-vswitchd, on AF_PACKET sockets and tap devices
)

// KernelFamily is the generic netlink family of the kernel's datapath.
const KernelFamily = "ovs_datapath"

// DetectDatapath returns DatapathSystem if the kernel has openvswitch, otherwise DatapathNetdev,
// and the reason as text. It tries to load the module. genlFamily reports whether a generic netlink
// family exists (link.HasGenericFamily), which also detects a built-in openvswitch.
func DetectDatapath(genlFamily func(string) bool) (datapath, reason string) {
	if genlFamily(KernelFamily) {
		return DatapathSystem, "the kernel has openvswitch"
	}

	modprobe, err := exec.LookPath("modprobe")
	if err != nil {
		return DatapathNetdev, "the kernel has no openvswitch loaded, and there is no modprobe"
	}

	out, err := exec.Command(modprobe, "openvswitch").CombinedOutput()

	if genlFamily(KernelFamily) {
		return DatapathSystem, "the kernel has openvswitch (loaded now)"
	}

	if _, statErr := os.Stat("/sys/module/openvswitch"); statErr == nil {
		return DatapathSystem, "the kernel has the module openvswitch"
	}

	return DatapathNetdev, fmt.Sprintf("the kernel has no openvswitch (modprobe: %v %q)", err, firstLine(out))
}

// CheckDatapath returns an error if the kernel lacks the datapath of the bridge. If the bridge does
// not exist, the datapath that AddBridge would select counts. ovs-vswitchd reports a bridge without
// a datapath only in its log.
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

	return fmt.Errorf("bridge %s: datapath type system: %s: load the module openvswitch, or use Open vSwitch's userspace datapath (--datapath netdev)",
		bridge, reason)
}

// DatapathStats are the statistics of all datapaths of a node's ovs-vswitchd.
type DatapathStats struct {
	Hit, Missed, Lost uint64 // packets: found in the flow table, sent to ovs-vswitchd, and dropped instead
	Flows             uint64 // datapath flows that exist now
}

// ReadDatapathStats queries ovs-vswitchd through run directory rundir.
func ReadDatapathStats(ctx context.Context, rundir string) (DatapathStats, error) {
	reply, err := askSwitch(ctx, rundir, "dpctl/show")
	if err != nil {
		return DatapathStats{}, fmt.Errorf("query ovs-vswitchd: %w", err)
	}

	return parseDatapathStats(reply)
}

// parseDatapathStats sums the statistics of all datapaths in the reply of dpctl/show.
func parseDatapathStats(show string) (DatapathStats, error) {
	var sum DatapathStats

	found := false

	lines := bufio.NewScanner(strings.NewReader(show))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())

		var d DatapathStats
		if n, _ := fmt.Sscanf(line, "lookups: hit:%d missed:%d lost:%d", &d.Hit, &d.Missed, &d.Lost); n == 3 {
			found = true
		} else if n, _ := fmt.Sscanf(line, "flows: %d", &d.Flows); n != 1 {
			continue
		}

		sum.Hit += d.Hit
		sum.Missed += d.Missed
		sum.Lost += d.Lost
		sum.Flows += d.Flows
	}

	if !found {
		return sum, errors.New("read datapath statistics: no lookups in the reply of dpctl/show")
	}

	return sum, nil
}

// userspaceDatapath is the datapath that all bridges of type netdev share.
const userspaceDatapath = "netdev@ovs-netdev"

// renewTimeout limits RenewDevice.
const renewTimeout = 5 * time.Second

// RenewDevice makes ovs-vswitchd reopen the tap device of an internal port of the userspace
// datapath after the device was deleted. ovs-vswitchd does not detect the deletion and keeps
// reading from a dead descriptor. The caller must have checked that the device is missing. If
// ovs-vswitchd has not opened the device yet, RenewDevice changes nothing and returns false. Other
// ports, flows and connections stay.
func (c *Client) RenewDevice(ctx context.Context, rundir, name string) (renewed bool, err error) {
	row, err := c.iface(ctx, name)
	if err != nil || row == nil || row.Ofport == nil || *row.Ofport <= 0 {
		return false, err
	}

	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()

	ports, err := askSwitch(ctx, rundir, "dpctl/show", userspaceDatapath)
	if err != nil {
		return false, fmt.Errorf("open device %s again: %w", name, err)
	}

	if !strings.Contains(ports, ": "+name+" (") {
		return false, nil // ovs-vswitchd has just started: the port number in the database is stale
	}

	if _, err := askSwitch(ctx, rundir, "dpctl/del-if", userspaceDatapath, name); err != nil {
		return false, fmt.Errorf("open device %s again: %w", name, err)
	}

	// ovs-vswitchd adds a port that the datapath lacks when the configuration changes.
	if err := c.WaitApplied(ctx); err != nil {
		return false, fmt.Errorf("open device %s again: %w", name, err)
	}

	return true, nil
}
