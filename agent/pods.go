package agent

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/agent/cniserver"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/metrics"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// cniServer builds what serves the CNI plugin and what keeps pods' ports. The
// program is nil on the kernel datapath.
func (a *agent) cniServer(collector *metrics.Collector) (*cniserver.Server, *podnet.Keeper, *bpf.Steal, error) {
	wirer := &podnet.Wirer{OVS: a.ovs, Bridge: ovs.IntegrationBridge, Dir: podRecords(a.cfg), Observe: collector.ObserveCNIPhase}
	var steal *bpf.Steal
	if a.settings.Datapath == ovs.DatapathNetdev {
		var err error
		if steal, err = bpf.NewSteal(bpf.ClsactFuncs{Attach: link.AttachClsact, Detach: link.DetachClsact}); err != nil {
			return nil, nil, nil, err
		}
		wirer.Steal = steal
	}
	keeper := &podnet.Keeper{Wirer: wirer, Gone: a.podGone, Log: a.log}
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

// cniStatus is what CNI's STATUS is told. What the gateway lacks, pods that are
// there miss, too.
func (a *agent) cniStatus() (missing []string, limited bool) {
	return a.ready.missing(), a.gateway.Missing() != ""
}
