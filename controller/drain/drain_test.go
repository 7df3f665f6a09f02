package drain

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// node is of a mode, "-" for one about which no agent has said anything.
func node(name, mode string, more ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		annotation.GatewayConfig: `{"default":{"mode":"` + mode + `","mac-address":"02:00:00:00:00:01","ip-addresses":["192.0.2.1/24"]}}`,
	}}}
	if mode == "-" {
		n.Annotations = map[string]string{}
	}

	for i := 0; i < len(more); i += 2 {
		n.Annotations[more[i]] = more[i+1]
	}

	return n
}

func notReady(n corev1.Node) corev1.Node {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	return n
}

func TestFindGateway(t *testing.T) {
	nodes := []corev1.Node{node("gw", "shared"), node("local", "local"), node("none", ""), node("new", "-"), node("bad", "nonsense")}
	for name, want := range map[string]string{
		"gw": "", "local": "", "none": `node "none" has no gateway: its pods leave`, "new": `node "new" has no gateway: no agent`,
		"bad": `mode "nonsense"`, "gone": `node "gone" does not exist`,
	} {
		n, err := findGateway(nodes, name)
		switch {
		case want == "" && (err != nil || n.Name != name):
			t.Errorf("%s: %v", name, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

func TestCheckOthers(t *testing.T) {
	drained := []string{annotation.DrainGateway, "true"}
	for _, tt := range []struct {
		name   string
		others []corev1.Node
		want   string // "": it may be drained
	}{
		{"another", []corev1.Node{node("gw2", "shared"), node("a", "")}, ""},
		{"alone", nil, "no node serves"},
		{"alone, and others' way out", []corev1.Node{node("a", ""), node("b", "")}, "pods on a, b have none"},
		{"the other is drained", []corev1.Node{node("gw2", "shared", drained...), node("a", "")}, "pods on a have none"},
		{"the other is not ready", []corev1.Node{notReady(node("gw2", "shared")), node("a", "")}, "pods on a have none"},
		{"the other is local", []corev1.Node{node("gw2", "local"), node("a", "")}, "pods on a have none"},
		{"the other is local, no node needs it", []corev1.Node{node("gw2", "local")}, ""},
		{"the other does not translate", []corev1.Node{node("gw2", "shared", annotation.RoutablePods, "true"), node("a", "")}, "pods on a have none"},
		{"the other has not said", []corev1.Node{node("gw2", "-")}, "no node serves"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nodes := append([]corev1.Node{node("gw", "shared")}, tt.others...)

			err := checkOthers(nodes, &nodes[0])
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (!errors.Is(err, ErrLast) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestRemaining(t *testing.T) {
	by := func(name string, gateways ...string) corev1.Node {
		return node(name, "", annotation.LeavesBy, annotation.FormatLeavesBy(gateways))
	}
	full := strings.Split("1 2 3 4 5 6 7 8", " ")

	nodes := []corev1.Node{node("gw", "shared"), by("a", "gw", "gw2"), by("b", "gw2"), by("c", full...), node("new", "")}
	if got, want := remaining(nodes, "gw", false), []string{"a", "new"}; !slices.Equal(got, want) {
		t.Errorf("still leave by it: %v, want %v", got, want)
	}

	if got, want := remaining(nodes, "gw", true), []string{"b", "new"}; !slices.Equal(got, want) {
		t.Errorf("do not yet: %v, want %v", got, want)
	}
}
