package gateway

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

const (
	reservedSysctl = "net/ipv4/ip_local_reserved_ports"
	reservedRecord = "reserved-ports" // in the run directory: the ports that the agent added
	localSysctl    = "net/ipv4/ip_local_port_range"
	minLocalPorts  = 1024 // ephemeral ports that must remain for the host
)

// reserved returns the ports that the host's kernel must not choose as ephemeral ports.
func (s Settings) reserved() []bpf.PortRange {
	if s.bare() {
		return nil
	}
	want := []bpf.PortRange{s.SNATPorts}
	if s.NodePorts {
		want = append(want, bpf.PortRange{First: firstNodePort, Last: lastNodePort})
	}
	return want
}

// checkPorts returns an error if the reservation would leave the host without ephemeral ports, for
// example because its ephemeral range is the SNAT range.
func checkPorts(want []bpf.PortRange) error {
	local, err := link.ReadSysctl(localSysctl)
	if err != nil {
		return err
	}
	have, err := link.ReadSysctl(reservedSysctl)
	if err != nil {
		return err
	}
	return portsLeft(local, have, want)
}

func portsLeft(local, have string, want []bpf.PortRange) error {
	picks, err := parsePorts(strings.Join(strings.Fields(local), "-"))
	if err != nil {
		return fmt.Errorf("sysctl %s: %w", localSysctl, err)
	}
	taken, err := parsePorts(have)
	if err != nil {
		return fmt.Errorf("sysctl %s: %w", reservedSysctl, err)
	}
	left := 0
	for _, r := range subtractPorts(picks, append(taken, want...)) {
		left += int(r.Last) - int(r.First) + 1
	}
	if left < minLocalPorts {
		return fmt.Errorf("reserve ports %s: only %d of the host's ephemeral ports %s would remain, need %d: change sysctl %s or the SNAT port range",
			formatPorts(want), left, formatPorts(picks), minLocalPorts, localSysctl)
	}
	return nil
}

// Unreserved returns the ephemeral ports of the host that conflict with the SNAT range or with
// NodePorts, such as "49152-65535". It returns "" if there are none.
func Unreserved(snat bpf.PortRange, nodePorts bool) (string, error) {
	value, err := link.ReadSysctl(reservedSysctl)
	if err != nil {
		return "", err
	}
	have, err := parsePorts(value)
	if err != nil {
		return "", fmt.Errorf("sysctl %s: %w", reservedSysctl, err)
	}
	return formatPorts(subtractPorts(Settings{Cluster: Cluster{SNATPorts: snat, NodePorts: nodePorts}}.reserved(), have)), nil
}

// reservePorts excludes want from the host's ephemeral ports. Foreign entries stay. Added ports are
// first recorded in rundir, so that releasePorts removes only these.
func reservePorts(rundir string, want []bpf.PortRange) error {
	value, err := link.ReadSysctl(reservedSysctl)
	if err != nil {
		return err
	}
	have, err := parsePorts(value)
	if err != nil {
		return fmt.Errorf("sysctl %s: %w", reservedSysctl, err)
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
	record := formatPorts(mergePorts(append(ours, missing...)))
	if err := atomicfile.Write(filepath.Join(rundir, reservedRecord), []byte(record+"\n"), 0o644); err != nil {
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
	value, err := link.ReadSysctl(reservedSysctl)
	if err != nil {
		return err
	}
	have, err := parsePorts(value)
	if err != nil {
		return fmt.Errorf("sysctl %s: %w", reservedSysctl, err)
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

func readRecord(rundir string) ([]bpf.PortRange, error) {
	b, err := os.ReadFile(filepath.Join(rundir, reservedRecord))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read record of reserved ports: %w", err)
	}
	return parsePorts(string(b))
}
