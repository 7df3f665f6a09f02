package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/agent/cniserver"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/metrics"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// cniServer builds what serves the CNI plugin and what keeps pods' ports. The
// program is nil on the kernel datapath.
func (a *agent) cniServer(collector *metrics.Collector) (*cniserver.Server, *podnet.Keeper, *bpf.Steal, error) {
	wirer := &podnet.Wirer{OVS: a.ovs, Bridge: ovs.IntegrationBridge, Dir: podRecords(a.cfg), Observe: collector.ObserveCNIPhase}
	var steal *bpf.Steal
	if a.cfg.Datapath == ovs.DatapathNetdev {
		var err error
		if steal, err = bpf.NewSteal(bpf.ClsactFuncs{Attach: link.AttachClsact, Detach: link.DetachClsact}); err != nil {
			return nil, nil, nil, err
		}
		wirer.Steal = steal
	}
	keeper := &podnet.Keeper{Wirer: wirer, Gone: a.podGone, Assigned: a.podAssigned, Readdressed: a.podReaddressed, Wake: a.podsWake, Log: a.log}
	server := cniserver.New(cniserver.Options{
		Socket: a.cfg.CNISocket, Cluster: a.cluster, Wirer: wirer, Keeper: keeper, Status: a.cniStatus,
		MTU: func() int { return int(a.mtu.Load()) }, Observe: collector.ObserveCNI, ObservePhase: collector.ObserveCNIPhase, Log: a.log,
	})
	keeper.Try = server.Try
	return server, keeper, steal, nil
}

// podRecords is the directory of what podnet writes down: the next boot empties it.
func podRecords(cfg Config) string { return filepath.Join(cfg.RunDir, "pods") }

// podGone is asked about pods that nobody may know yet after a start.
func (a *agent) podGone(ctx context.Context, namespace, name, uid string) (bool, error) {
	if missing := a.cluster.Missing(); missing != "" {
		return false, errors.New(missing)
	}
	return a.cluster.PodGone(ctx, cluster.PodRef{Namespace: namespace, Name: name, UID: uid})
}

// podAssigned returns what the pod's annotation says, if it can be an interface's.
func (a *agent) podAssigned(namespace, name, uid string) (podnet.Assigned, bool) {
	pod := a.cluster.Pod(cluster.PodRef{Namespace: namespace, Name: name, UID: uid})
	if pod == nil {
		return podnet.Assigned{}, false
	}
	network, err := annotation.ParsePod(pod.Annotations)
	if err != nil || annotation.CheckMAC(network.MAC) != nil {
		return podnet.Assigned{}, false
	}
	return podnet.Assigned{MAC: network.MAC, Addresses: network.Addresses, Gateways: network.Gateways}, true
}

// eventReaddressed is the reason of the Event of a pod whose addresses have changed.
const eventReaddressed = "Readdressed"

// podReaddressed tells whoever looks at the pod: its status keeps what ADD returned.
func (a *agent) podReaddressed(ctx context.Context, now podnet.Pod, was podnet.Assigned) {
	namespace, name, _ := strings.Cut(now.LogicalPort, "_")
	pod := a.cluster.Pod(cluster.PodRef{Namespace: namespace, Name: name, UID: now.UID})
	if pod == nil {
		return
	}
	text := fmt.Sprintf("its addresses were %v when it was started, and are %v now; its status says the former until it is made again", was.Addresses, now.Addresses)
	if err := a.cluster.WarnPod(ctx, pod, eventReaddressed, text); err != nil {
		a.log.Warn("cannot write an event", "error", err)
	}
}

// cniStatus is what CNI's STATUS is told. What the gateway lacks, pods that are
// there miss, too.
func (a *agent) cniStatus() (missing []string, limited bool) {
	return a.ready.missing(), a.gateway.Missing() != ""
}
