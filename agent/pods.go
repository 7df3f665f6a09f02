package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/assignment"
	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/agent/cniserver"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet/bridge"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// cniServer builds the server of the CNI plugin, and the keeper, which restores pods' interfaces
// and removes those of deleted pods. steal is the program for pods' devices on the userspace
// datapath, which the caller closes. On the kernel datapath it is nil.
func (a *agent) cniServer(
	durations *cniserver.Durations,
) (server *cniserver.Server, keeper *podnet.Keeper, steal *bpf.Steal, err error) {
	connector := &bridge.Bridge{OVS: a.ovs, Name: ovs.IntegrationBridge}

	interfaces := &podnet.InterfaceManager{
		Connector: connector, Dir: podRecords(a.cfg), Observe: durations.ObservePhase,
	}
	if a.cfg.NoShortcuts() == "" {
		interfaces.OnDeviceAdded = a.shortcuts.Add
	}

	if a.cfg.Userspace() {
		clsact := bpf.ClsactFuncs{Attach: link.AttachClsact, Detach: link.DetachClsact}

		if steal, err = bpf.NewSteal(clsact); err != nil {
			return nil, nil, nil, err
		}

		connector.Steal, interfaces.NoChecksum = steal, true
	}

	source := assignment.Source{Cluster: a.cluster, MTU: func() int { return int(a.mtu.Load()) }}

	assigned := func(namespace, name, uid string) (podnet.AssignedAddresses, bool) {
		return source.Assigned(cluster.PodRef{Namespace: namespace, Name: name, UID: uid})
	}

	keeper = &podnet.Keeper{
		Interfaces:  interfaces,
		Attached:    connector,
		Gone:        a.cluster.PodLeft,
		Assigned:    assigned,
		Readdressed: a.podReaddressed,
		Wake:        a.podsWake,
		Log:         a.log,
	}
	if interfaces.OnDeviceAdded != nil {
		keeper.OnPass = a.shortcuts.Sync
	}

	server = cniserver.New(cniserver.Options{
		Socket:       a.cfg.CNISocket,
		Cluster:      a.cluster,
		Source:       source,
		Interfaces:   interfaces,
		Keeper:       keeper,
		Status:       a.cniStatus,
		Observe:      durations.Observe,
		ObservePhase: durations.ObservePhase,
		Log:          a.log,
	})
	keeper.Try = server.Try

	return server, keeper, steal, nil
}

// podRecords returns the directory of podnet's records. It is emptied at boot.
func podRecords(cfg Config) string { return filepath.Join(cfg.RunDir, podnet.RecordDir) }

// eventReaddressed is the reason of the Event about a pod's changed addresses.
const eventReaddressed = "Readdressed"

// podReaddressed writes an Event about a pod whose addresses have changed. Its status keeps the
// addresses that it got at its start.
func (a *agent) podReaddressed(ctx context.Context, now podnet.Pod, before podnet.AssignedAddresses) {
	namespace, name, _ := strings.Cut(now.LogicalPort, "_")

	pod := a.cluster.Pod(cluster.PodRef{Namespace: namespace, Name: name, UID: now.UID})
	if pod == nil { // it was deleted meanwhile
		return
	}

	text := fmt.Sprintf("the pod's addresses were %v when it started, and are %v now; "+
		"its status has the former ones until it is created again", before.Addresses, now.Addresses)
	if err := a.cluster.WarnPod(ctx, pod, eventReaddressed, text); err != nil {
		a.log.Warn("cannot write an event", "error", err)
	}
}

// cniStatus returns the input of CNI STATUS: see cniserver.Options.Status. Faults of the gateway
// also affect existing pods.
func (a *agent) cniStatus() (missing []string, limited bool) {
	return a.ready.Missing(), a.gateway.View().Missing() != ""
}
