package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Key names an owner of rows. Its String form is stored in the rows: the kind's name, then
// "/<namespace>" if the kind is namespaced, then "/<name>". The cluster's key is "cluster".
type Key struct {
	Kind            Kind
	Namespace, Name string
}

// ClusterKey owns the rows that exist once: cluster router, join switch, load balancer groups.
func ClusterKey() Key { return Key{Kind: KindCluster} }

// NodeKey owns all rows of one node.
func NodeKey(name string) Key { return Key{Kind: KindNode, Name: name} }

// PodKey owns a pod's port, and the load balancers of its host ports.
func PodKey(namespace, name string) Key { return Key{KindPod, namespace, name} }

// ServiceKey owns a Service's load balancers, and the ACLs of its source ranges.
func ServiceKey(namespace, name string) Key { return Key{KindService, namespace, name} }

// SelectorKey owns the port group of that name, and its ACLs that drop traffic. The group's members
// are the pods of one selector of policies.
func SelectorKey(group string) Key { return Key{Kind: KindSelector, Name: group} }

// PolicyKey owns the ACLs that allow the connections of a NetworkPolicy, and the port groups of its
// named ports.
func PolicyKey(namespace, name string) Key { return Key{KindPolicy, namespace, name} }

// String returns the key as it is stored in rows.
func (k Key) String() string {
	if k.Kind == KindCluster {
		return k.Kind.String()
	}

	return k.Kind.String() + "/" + k.object()
}

// object returns the key of the owner's object in its store.
func (k Key) object() string {
	if k.Namespace == "" {
		return k.Name
	}

	return k.Namespace + "/" + k.Name
}

// Compare orders keys by kind, namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace),
		cmp.Compare(k.Name, o.Name))
}

// ParseKey is the inverse of Key.String. It returns an error for a kind that owns no rows, and for
// a wrong number of parts.
func ParseKey(s string) (Key, error) {
	if s == KindCluster.String() {
		return ClusterKey(), nil
	}

	kind, rest, _ := strings.Cut(s, "/")
	parts := strings.Split(rest, "/")

	var forms []string // for the error

	for _, k := range Kinds() {
		e := k.entry()
		if e.rows == nil || k == KindCluster {
			continue
		}

		want, form := 1, e.name+"/<name>"
		if e.namespaced {
			want, form = 2, e.name+"/<namespace>/<name>"
		}

		forms = append(forms, form)

		if kind != e.name || len(parts) != want || slices.Contains(parts, "") {
			continue
		}

		if e.namespaced {
			return Key{k, parts[0], parts[1]}, nil
		}

		return Key{Kind: k, Name: rest}, nil
	}

	return Key{}, fmt.Errorf("parse owner key %q: not cluster, %s", s, strings.Join(forms, ", "))
}

// OwnedPorts returns the names of the key's ports to which rows of tables without external_ids
// refer (Static_MAC_Binding). Such a row cannot name its owner, so the owner follows from its port.
// Only nodes have such ports: those of their routers.
func OwnedPorts(k Key) []string {
	if k.Kind != KindNode {
		return nil
	}

	return []string{externalPort + k.Name, joinPort + gatewayRouter + k.Name}
}

// PortOwner is the inverse of OwnedPorts: it returns the key that owns the port.
func PortOwner(port string) (Key, bool) {
	for _, prefix := range []string{externalPort, joinPort + gatewayRouter} {
		if name, ok := strings.CutPrefix(port, prefix); ok && name != "" {
			return NodeKey(name), true
		}
	}

	return Key{}, false
}
