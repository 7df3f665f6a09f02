package reconcile

import (
	"fmt"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestBeyondSupportedSize checks that the node after the last supported one gets a subnet and an
// Event, and that no node before it gets an Event.
func TestBeyondSupportedSize(t *testing.T) {
	s := newScriptedCluster(t)
	for i := range plan.SupportedNodes {
		s.node(fmt.Sprintf("node%03d", i), "")
	}

	all := func() bool {
		for i := range plan.SupportedNodes {
			if s.subnets(fmt.Sprintf("node%03d", i)) == nil {
				return false
			}
		}

		return true
	}
	s.eventually("as many nodes as are supported have subnets", all)

	if early := s.eventsWith("BeyondSupportedSize"); len(early) > 0 {
		t.Errorf("events in a cluster of supported size: %v", early)
	}

	s.node("onemore", "")
	s.waitForEvent(fmt.Sprintf("node onemore BeyondSupportedSize the cluster has %d nodes with a pod subnet, and %d are supported",
		plan.SupportedNodes+1, plan.SupportedNodes))
	s.eventually("the node has subnets", func() bool { return s.subnets("onemore") != nil })
}
