package reconcile

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestLeavesByPatch: a node without a gateway gets the annotation, once, and loses it when it has
// a gateway.
func TestLeavesByPatch(t *testing.T) {
	node := func(name, mode string, more ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1", Annotations: map[string]string{
			annotation.GatewayConfig: `{"default":{"mode":"` + mode + `","interface-id":"breth0_` + name + `","mac-address":"02:00:00:00:00:01","ip-addresses":["192.0.2.1/24"]}}`,
			annotation.ChassisID:     name,
			annotation.NodeSubnets:   `{"default":["10.244.1.0/24"]}`,
			annotation.NodeJoin:      `{"default":{"ipv4":"100.64.0.2/16"}}`,
		}}}
		for i := 0; i < len(more); i += 2 {
			n.Annotations[more[i]] = more[i+1]
		}

		return n
	}

	drained := []string{annotation.DrainGateway, "true"}
	for _, tt := range []struct {
		name string
		node *corev1.Node
		gw2  []string
		want *patch
	}{
		{"no annotation", node("a", ""), nil, &patch{annotations: map[string]any{annotation.LeavesBy: `["gw1","gw2"]`}}},
		{"right annotation", node("a", "", annotation.LeavesBy, `["gw1","gw2"]`), nil, nil},
		{"one is drained", node("a", "", annotation.LeavesBy, `["gw1","gw2"]`), drained, &patch{annotations: map[string]any{annotation.LeavesBy: `["gw1"]`}}},
		{"it has one again", node("a", "shared", annotation.LeavesBy, `["gw1"]`), nil, &patch{annotations: map[string]any{annotation.LeavesBy: nil}}},
		{"it has one", node("a", "local"), nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := NewCluster(plan.Config{}, tt.node, node("gw1", "shared"), node("gw2", "shared", tt.gw2...))
			if err != nil {
				t.Fatal(err)
			}

			if tt.want != nil {
				tt.want.object = &tt.node.ObjectMeta
			}

			if diff := cmp.Diff(tt.want, leavesByPatch(c, plan.NodeKey("a")), cmp.AllowUnexported(patch{})); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}
