package ovs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Datapath types of OVS.
const (
	DatapathSystem = "system" // in the kernel
	DatapathNetdev = "netdev" // in ovs-vswitchd, on AF_PACKET sockets and tap devices
)

// KernelFamily is the generic netlink family of the kernel's datapath.
const KernelFamily = "ovs_datapath"

// DetectDatapath returns DatapathSystem if the kernel has openvswitch, otherwise DatapathNetdev,
// and the reason. It tries to load the module. genlFamily reports whether a generic netlink family
// exists; this detects a built-in openvswitch.
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
// not exist, the datapath that AddBridge would select counts. ovs-vswitchd reports such a bridge
// only in its log.
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

// firstLine returns the first line of a program's output.
func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return string(line)
}

// DatapathStats are the statistics of all datapaths of a node's ovs-vswitchd.
type DatapathStats struct {
	Hit, Missed, Lost uint64 // packets looked up
	Flows             uint64
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
