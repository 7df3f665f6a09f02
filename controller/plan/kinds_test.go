package plan_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestKinds checks that the entries agree with each other and with the API types: names are unique,
// owners' names can be parsed, and each resource has the name that Kubernetes derives from its
// type.
func TestKinds(t *testing.T) {
	names := map[string]plan.Kind{}
	for _, k := range plan.Kinds() {
		if other, ok := names[k.String()]; ok || strings.HasPrefix(k.String(), "Kind(") {
			t.Errorf("kind %d has the name %q, as kind %d", k, k, other)
		}

		names[k.String()] = k
	}

	namespaced := map[plan.Kind]bool{}
	scheme := plan.NewScheme()

	for _, r := range plan.Resources() {
		namespaced[r.Kind] = r.Namespaced
		if got := plan.KindOf(r.Object); got != r.Kind {
			t.Errorf("KindOf(%T) = %s, want %s", r.Object, got, r.Kind)
		}

		types, _, err := scheme.ObjectKinds(r.Object)
		if err != nil {
			t.Errorf("%s: %v", r.Kind, err)
			continue
		}

		if want, _ := meta.UnsafeGuessKindToResource(types[0]); r.GroupVersionResource != want {
			t.Errorf("resource of %s: %s, want %s", r.Kind, r.GroupVersionResource, want)
		}

		if list := types[0]; !scheme.Recognizes(list.GroupVersion().WithKind(list.Kind + "List")) {
			t.Errorf("the scheme lacks a list of %s", list)
		}
	}

	for _, k := range plan.OwnerKinds() {
		key := plan.Key{Kind: k, Name: "a.b"}
		if namespaced[k] {
			key.Namespace = "ns"
		}

		if k == plan.KindCluster {
			key = plan.ClusterKey()
		}

		if got, err := plan.ParseKey(key.String()); err != nil || got != key {
			t.Errorf("ParseKey(%q) = %v, %v", key, got, err)
		}
	}

	if next := plan.Kinds()[len(plan.Kinds())-1] + 1; next.String() != fmt.Sprintf("Kind(%d)", next) {
		t.Errorf("name of a kind without an entry: %s", next)
	}

	if got := plan.KindOf(&reflect.Value{}); got != 0 {
		t.Errorf("KindOf of a type that no plan reads: %s", got)
	}
}
