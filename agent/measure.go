package agent

import (
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
)

// conntrackFailures reads what the connection tracker has lost; nil on the userspace
// datapath, which does not count it.
func conntrackFailures(s gateway.Settings) func() (map[string]uint64, error) {
	if s.Userspace() {
		return nil
	}
	return link.ConntrackFailures
}
