package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

// The agent adds the SNAT range and the node ports to the kernel's reserved ports (reservedSysctl).
// The kernel then does not choose them as local ports of the host's own connections. Its choice is
// among the other ports of localSysctl, the ephemeral ports. A socket can still bind a reserved
// port explicitly (see hostUse).
const (
	reservedSysctl = "net/ipv4/ip_local_reserved_ports"
	reservedRecord = "reserved-ports" // in the run directory: the ports that the agent added
	localSysctl    = "net/ipv4/ip_local_port_range"
	minLocalPorts  = 1024 // ephemeral ports that must remain for the host
)

// reserved returns the ports that the host's kernel must not choose as ephemeral ports.
func (s Settings) reserved() []cluster.PortRange {
	if s.leavesUplinkAlone() {
		return nil
	}

	want := []cluster.PortRange{s.SNATPorts}
	if s.NodePorts {
		want = append(want, s.NodePortRange)
	}

	return want
}

// checkPorts returns an error if the reservation would leave the host without ephemeral ports, for
// example because its ephemeral range is the SNAT range.
func checkPorts(want []cluster.PortRange) error {
	local, err := readPorts(localSysctl)
	if err != nil {
		return err
	}

	have, err := readPorts(reservedSysctl)
	if err != nil {
		return err
	}

	return checkRemaining(local, have, want)
}

// checkRemaining returns an error if too few of the local ports are in neither of the other lists:
// have, which are reserved, and want, which are about to be.
func checkRemaining(local, have, want []cluster.PortRange) error {
	left := 0
	for _, r := range subtractPorts(local, slices.Concat(have, want)) {
		left += r.Len()
	}

	if left < minLocalPorts {
		return fmt.Errorf("reserve ports %s: only %d of the host's ephemeral ports %s would remain, need %d: change sysctl %s or the SNAT port range",
			formatPorts(want), left, formatPorts(local), minLocalPorts, localSysctl)
	}

	return nil
}

// Unreserved returns the ports of want that the host may choose for its own connections, such as
// "49152-65535". It returns "" if there are none.
func Unreserved(want ...cluster.PortRange) (string, error) {
	have, err := readPorts(reservedSysctl)
	if err != nil {
		return "", err
	}

	return formatPorts(subtractPorts(want, have)), nil
}

// readPorts reads a sysctl that is a list of ports, such as reservedSysctl, or the first and the
// last port of a range with white space between them, such as localSysctl.
func readPorts(sysctl string) ([]cluster.PortRange, error) {
	value, err := link.ReadSysctl(sysctl)
	if err != nil {
		return nil, err
	}

	ports, err := parsePorts(strings.Join(strings.Fields(value), "-"))
	if err != nil {
		return nil, fmt.Errorf("sysctl %s: %w", sysctl, err)
	}

	return ports, nil
}

// readEphemeral returns the ports among which the host's kernel chooses for its own connections.
func readEphemeral() ([]cluster.PortRange, error) {
	local, err := readPorts(localSysctl)
	if err != nil {
		return nil, err
	}

	have, err := readPorts(reservedSysctl)

	return subtractPorts(local, have), err
}

// ephemeral returns the host's ephemeral ports that no frontend gets. Ports that the agent reserves
// do not count, even while another program has removed the reservation.
func (s Settings) ephemeral(h Host) []cluster.PortRange {
	if s.leavesUplinkAlone() {
		return nil // packets from outside reach no frontend, so all of the ports can have one
	}

	return subtractPorts(h.Ephemeral, s.reserved())
}

// openUDP returns the host's unconnected UDP sockets outside of its ephemeral ports, where clients
// come and go. No frontend may take such a port from the host.
func openUDP(h Host, ephemeral []cluster.PortRange) []netip.AddrPort {
	return slices.DeleteFunc(slices.Clone(h.UDP),
		func(a netip.AddrPort) bool { return contains(ephemeral, a.Port()) })
}

// loopbackTCP returns the host's TCP listeners that connections to loopback addresses reach,
// outside of its ephemeral ports.
func loopbackTCP(h Host, ephemeral []cluster.PortRange) []netip.AddrPort {
	return slices.DeleteFunc(slices.Clone(h.TCP), func(a netip.AddrPort) bool {
		onLoopback := a.Addr().IsUnspecified() || a.Addr().IsLoopback()
		return !onLoopback || contains(ephemeral, a.Port())
	})
}

func contains(ports []cluster.PortRange, port uint16) bool {
	return slices.ContainsFunc(ports, func(r cluster.PortRange) bool { return r.Contains(port) })
}

// reservePorts excludes want from the host's ephemeral ports. Foreign entries stay. Added ports are
// first recorded in rundir, so that releasePorts removes only these.
func reservePorts(rundir string, want []cluster.PortRange) error {
	have, err := readPorts(reservedSysctl)
	if err != nil {
		return err
	}

	missing := subtractPorts(want, have)
	if len(missing) == 0 {
		return nil
	}

	ours, err := readRecord(rundir)
	if err != nil {
		return err
	}

	if err := os.MkdirAll(rundir, 0o755); err != nil {
		return fmt.Errorf("make run directory: %w", err)
	}

	record := []byte(formatPorts(mergePorts(append(ours, missing...))) + "\n")
	if err := atomicfile.Write(filepath.Join(rundir, reservedRecord), record, 0o644); err != nil {
		return fmt.Errorf("record reserved ports: %w", err)
	}

	return link.WriteSysctl(reservedSysctl, formatPorts(mergePorts(append(have, missing...))))
}

// releasePorts undoes reservePorts.
func releasePorts(rundir string) error {
	ours, err := readRecord(rundir)
	if err != nil || len(ours) == 0 {
		return err
	}

	have, err := readPorts(reservedSysctl)
	if err != nil {
		return err
	}

	rest := formatPorts(subtractPorts(have, ours))
	if rest == "" {
		rest = "\n" // an empty write would change nothing
	}

	if err := link.WriteSysctl(reservedSysctl, rest); err != nil {
		return err
	}

	if err := os.Remove(filepath.Join(rundir, reservedRecord)); err != nil {
		return fmt.Errorf("remove record of reserved ports: %w", err)
	}

	return nil
}

// readRecord returns the ports that the agent has reserved, or nothing without a record.
func readRecord(rundir string) ([]cluster.PortRange, error) {
	b, err := os.ReadFile(filepath.Join(rundir, reservedRecord))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("read record of reserved ports: %w", err)
	}

	return parsePorts(string(b))
}
