package plan

import (
	"cmp"
	"fmt"
	"strings"
)

// Kind is the kind of owner that a Key names. Kinds sort in the order in which
// a cold start plans them: rows of a later kind refer to those of earlier ones.
type Kind uint8

// The kinds of owners.
const (
	KindCluster Kind = iota + 1
	KindServiceCIDR
	KindNode
	KindService
	KindSelector
	KindPolicy
	KindPod
)

func (k Kind) String() string {
	switch k {
	case KindCluster:
		return "cluster"
	case KindServiceCIDR:
		return "servicecidr"
	case KindNode:
		return "node"
	case KindService:
		return "service"
	case KindSelector:
		return "selector"
	case KindPolicy:
		return "policy"
	case KindPod:
		return "pod"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Key names an owner of rows. Its String form is what rows carry in the
// database: "cluster", "node/<name>", "servicecidr/<name>" (which owns none), "service/<namespace>/<name>",
// "selector/<port group>", "policy/<namespace>/<name>", "pod/<namespace>/<name>".
type Key struct {
	Kind            Kind
	Namespace, Name string
}

// ClusterKey owns what exists once: cluster router, join switch, load balancer group.
func ClusterKey() Key { return Key{Kind: KindCluster} }

// NodeKey owns everything of one node.
func NodeKey(name string) Key { return Key{Kind: KindNode, Name: name} }

// PodKey owns a pod's port.
func PodKey(namespace, name string) Key { return Key{KindPod, namespace, name} }

// externalPort and a node's name are the port between its gateway router and
// the physical network.
const externalPort = "rtoe-" + gatewayRouter

// OwnedPorts returns the ports whose rows in tables without owners are the
// key's, none but for a node: those of its router.
func OwnedPorts(k Key) []string {
	if k.Kind != KindNode {
		return nil
	}
	return []string{externalPort + k.Name, joinPort + gatewayRouter + k.Name}
}

// PortOwner is the inverse of OwnedPorts.
func PortOwner(port string) (Key, bool) {
	for _, prefix := range []string{externalPort, joinPort + gatewayRouter} {
		if name, ok := strings.CutPrefix(port, prefix); ok && name != "" {
			return NodeKey(name), true
		}
	}
	return Key{}, false
}

// ServiceKey owns a service's load balancers.
func ServiceKey(namespace, name string) Key { return Key{KindService, namespace, name} }

func (k Key) String() string {
	switch k.Kind {
	case KindCluster:
		return "cluster"
	case KindNode, KindSelector, KindServiceCIDR:
		return k.Kind.String() + "/" + k.Name
	default:
		return k.Kind.String() + "/" + k.Namespace + "/" + k.Name
	}
}

// Compare orders keys by kind, namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// ParseKey is the inverse of Key.String.
func ParseKey(s string) (Key, error) {
	kind, rest, _ := strings.Cut(s, "/")
	namespace, name, namespaced := strings.Cut(rest, "/")
	valid := namespace != "" && name != "" && !strings.Contains(name, "/")
	switch {
	case s == "cluster":
		return ClusterKey(), nil
	case kind == "node" && rest != "" && !namespaced:
		return NodeKey(rest), nil
	case kind == "servicecidr" && rest != "" && !namespaced:
		return ServiceCIDRKey(rest), nil
	case kind == "selector" && rest != "" && !namespaced:
		return SelectorKey(rest), nil
	case kind == "policy" && valid:
		return PolicyKey(namespace, name), nil
	case kind == "pod" && valid:
		return PodKey(namespace, name), nil
	case kind == "service" && valid:
		return ServiceKey(namespace, name), nil
	}
	return Key{}, fmt.Errorf("parse owner key %q: not cluster, node/<name>, servicecidr/<name>, selector/<port group>, or pod, service or policy with /<namespace>/<name>", s)
}
