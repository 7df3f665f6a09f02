package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// TestSystemID: the agent follows another system-id. If another Node has it, the agent keeps
// ovn-controller from the southbound database at once, and until the controller no longer says that
// the other one keeps it. It names both nodes.
func TestSystemID(t *testing.T) {
	r := newRig(t)
	r.createNode()
	r.annotate(annotation.NodeSubnets, annotation.FormatNodeSubnets([]netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}), "")

	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node2", Annotations: map[string]string{annotation.ChassisID: "taken"}}}
	if _, err := r.client.CoreV1().Nodes().Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	set := func(id string) {
		t.Helper()
		r.sw.Vsctl(t, "set", "Open_vSwitch", ".", "external_ids:system-id="+id)
	}
	is := func(what, id, remote string) {
		t.Helper()
		testnode.Eventually(t, what, func() error {
			node, err := r.client.CoreV1().Nodes().Get(t.Context(), r.cfg.NodeName, metav1.GetOptions{})
			if err != nil {
				return err
			}

			ids := r.sw.Vsctl(t, "get", "Open_vSwitch", ".", "external_ids")
			if node.Annotations[annotation.ChassisID] != id || strings.Contains(ids, "ovn-remote=") != (remote != "") || !strings.Contains(ids, remote) {
				err = fmt.Errorf("annotation %q, external_ids %s", node.Annotations[annotation.ChassisID], ids)
			}

			return err
		})
	}

	r.start()
	r.installed(management.Name)
	r.awaitMissing("")
	is("the node's name", "node1", `ovn-remote="`+r.cfg.SBAddress+`"`)
	set("another")
	is("another system-id", "another", `ovn-remote="`+r.cfg.SBAddress+`"`)
	set("taken")
	is("that of node2", "taken", "")
	r.annotate(annotation.ChassisTakenBy, "node2", "")
	r.awaitMissing(`node node1 has the system-id "taken" of node node2, which keeps it`)
	r.awaitEvent("ChassisTaken", "")
	r.stop()
	r.start() // it begins as the last one ended
	r.awaitMissing("node2, which keeps it")
	is("still refused", "taken", "")
	set("own")
	is("its own again", "own", "")
	r.annotate(annotation.ChassisTakenBy, "", "") // the controller
	is("accepted", "own", `ovn-remote="`+r.cfg.SBAddress+`"`)
	r.awaitMissing("")
}
