package cloud_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
)

// A VIF belongs to the Node whose pool was published with it, otherwise to the oldest Node.
func TestTakenVIFs(t *testing.T) {
	const none, a, b = "", `"vif":"a",`, `"vif":"b",`

	type node struct {
		name, id string
		host     int // in MAC and address
		age      time.Duration
	}

	for name, tt := range map[string]struct {
		nodes     []node
		published map[string]string
		want      []string // pairs of a Node whose VIF is taken, and the owner of the VIF
	}{
		"all different":              {[]node{{"n1", a, 1, 0}, {"n2", b, 2, 0}, {"n3", none, 3, 0}}, nil, nil},
		"same ID, one older":         {[]node{{"n1", a, 1, 1}, {"n2", a, 2, 2}}, nil, []string{"n1 n2"}},
		"same ID, same age":          {[]node{{"n2", a, 2, 1}, {"n1", a, 1, 1}}, nil, []string{"n2 n1"}},
		"same MAC and address":       {[]node{{"n1", none, 1, 1}, {"n2", none, 1, 2}}, nil, []string{"n1 n2"}},
		"ID and MAC of the same VIF": {[]node{{"n1", a, 1, 2}, {"n2", none, 1, 1}}, nil, []string{"n2 n1"}},
		"three of them": {
			[]node{{"n1", a, 1, 1}, {"n2", a, 1, 3}, {"n3", a, 1, 2}}, nil, []string{"n1 n2", "n3 n2"},
		},
		"the younger has the pool": {
			[]node{{"n1", a, 1, 1}, {"n2", a, 2, 2}}, map[string]string{"n1": "a"}, []string{"n2 n1"},
		},
		"the younger has the pool, by MAC": {
			[]node{{"n1", none, 1, 1}, {"n2", none, 1, 2}}, map[string]string{"n1": "a"}, []string{"n2 n1"},
		},
		"the older has the pool of another VIF": {
			[]node{{"n1", a, 1, 1}, {"n2", a, 2, 2}}, map[string]string{"n1": "a", "n2": "c"}, []string{"n2 n1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()

			var nodes []*corev1.Node
			for _, n := range tt.nodes {
				nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
					Name: n.name, CreationTimestamp: metav1.NewTime(now.Add(-n.age * time.Hour)),
					Annotations: map[string]string{annotation.Underlay: fmt.Sprintf(
						`{%s"mac":"fa:16:3e:00:00:0%d","address":"10.0.0.%d","mtu":1442}`, n.id, n.host, n.host)},
				}})
			}

			nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "without annotation"}})

			taken := cloud.TakenVIFs(nodes, func(node string) string { return tt.published[node] })

			var got []string

			for _, node := range slices.Sorted(maps.Keys(taken)) {
				p := taken[node]
				_, owner, _ := strings.Cut(p.Text, "is that of node ")
				owner, _, _ = strings.Cut(owner, ":")

				got = append(got, node+" "+owner)
				if p.Reason != cloud.VIFTaken {
					t.Errorf("%s: reason %s", node, p.Reason)
				}
			}

			if !slices.Equal(got, tt.want) {
				t.Errorf("taken: %q, want %q", got, tt.want)
			}
		})
	}
}
