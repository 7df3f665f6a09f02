package reconcile_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
)

// TestAffectedExits: nodes without a gateway depend on the shared gateways of
// others, and on nothing else of theirs.
func TestAffectedExits(t *testing.T) {
	node := func(name, mode string, more ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			annotation.GatewayConfig: `{"default":{"mode":"` + mode + `","mac-address":"02:00:00:00:00:01","ip-addresses":["192.0.2.1/24"]}}`,
		}}}
		for i := 0; i < len(more); i += 2 {
			n.Annotations[more[i]] = more[i+1]
		}

		return n
	}

	c, err := reconcile.NewCluster(plan.Config{}, node("none1", ""), node("none2", "disabled"), node("gw", "shared"), node("local", "local"))
	if err != nil {
		t.Fatal(err)
	}

	with := []string{"node/gw", "node/none1", "node/none2"}
	for _, tt := range []struct {
		name     string
		old, now any
		want     []string
	}{
		{"a gateway comes", nil, node("gw", "shared"), append([]string{"cluster"}, with...)},
		{"a gateway goes", node("gw", "shared"), nil, append([]string{"cluster"}, with...)},
		{"a gateway's join address", node("gw", "shared"), node("gw", "shared", annotation.NodeJoin, "{}"), with},
		{"a gateway's chassis", node("gw", "shared"), node("gw", "shared", annotation.ChassisID, "x"), with},
		{"a gateway stops translating", node("gw", "shared"), node("gw", "shared", annotation.RoutablePods, "true"), with},
		{"a gateway's management port", node("gw", "shared"), node("gw", "shared", annotation.ManagementMACs, "{}"), with},
		{"a gateway is drained", node("gw", "shared"), node("gw", "shared", annotation.DrainGateway, "true"), []string{"node/none1", "node/none2"}},
		{"whom a node leaves by is told", node("none1", ""), node("none1", "", annotation.LeavesBy, `["gw"]`), []string{"node/none1"}},
		{"a gateway becomes none", node("gw", "shared"), node("gw", ""), with},
		{"a gateway's MTU", node("gw", "shared"), node("gw", "shared", annotation.PodMTU, "1400"), []string{"node/gw"}},
		{"a local gateway comes", nil, node("local", "local"), []string{"cluster", "node/local"}},
		{"one without a gateway comes", nil, node("none1", ""), []string{"cluster", "node/none1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, k := range plan.Affected(c, tt.old, tt.now) {
				got = append(got, k.String())
			}

			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
}
