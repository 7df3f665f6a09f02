// Package annotation reads and writes the Kubernetes annotations by which the controller and the
// agents exchange values.
//
// Keys and JSON formats under k8s.ovn.org are those of ovn-kubernetes, so that its users' tools
// keep working. Keys under ovn-ebpf.io are this project's own.
//
// A Parse function gets the annotations of an object. It returns ErrNotSet (wrapped) if its key is
// absent, and an error that names the key if the value is malformed. If the key of ParseRequest or
// ParseTunnelAddress is absent, they return the zero Request, or false, instead. A Format function
// returns the value of a key.
//
// This file has the annotations of Nodes, host.go decides which addresses of a Node can be trusted,
// and pod.go and request.go have the annotations of pods. In underlay mode, underlay.go has the
// annotations of Nodes, and pool.go the ConfigMaps.
package annotation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotation keys. Each comment begins with the writer, and has an example of the value.
const (
	// controller: {"default":["10.244.0.0/24"]}
	NodeSubnets = "k8s.ovn.org/node-subnets"
	// controller: "2"
	NodeID = "k8s.ovn.org/node-id"
	// controller: {"default":{"ipv4":"100.64.0.2/16","ipv6":"fd98::2/64"}}
	NodeJoin = "k8s.ovn.org/node-gateway-router-lrp-ifaddrs"
	// agent: {"default":{"mode":"shared",...}}
	GatewayConfig = "k8s.ovn.org/l3-gateway-config"
	// agent: system-id of the node's OVS
	ChassisID = "k8s.ovn.org/node-chassis-id"
	// agent: [{"to":"0.0.0.0/0","via":"169.254.0.1","mac":"aa:bb:.."}], routes that GatewayConfig
	// cannot express
	GatewayRoutes = "ovn-ebpf.io/gateway-routes"
	// agent: ["172.30.0.11/24"]
	HostCIDRs = "k8s.ovn.org/host-cidrs"
	// agent: {"default":"aa:bb:.."}
	ManagementMACs = "k8s.ovn.org/node-mgmt-port-mac-addresses"
	// agent: "49152-65535"
	SNATPortRange = "ovn-ebpf.io/snat-port-range"
	// agent: "1442", bytes
	PodMTU = "ovn-ebpf.io/pod-mtu"
	// agent: "true" if the network outside has routes to the node's pods
	RoutablePods = "ovn-ebpf.io/routable-pods"
	// an operator: "true" while the node's gateway must not be used
	DrainGateway = "ovn-ebpf.io/drain-gateway"
	// controller, on nodes without a gateway: ["gw1","gw2"]
	LeavesBy = "ovn-ebpf.io/leaves-by"
	// agent: "172.30.1.11"
	TunnelAddress = "ovn-ebpf.io/tunnel-address"
	// controller: how the node's chassis in the Southbound database differs from the node
	ChassisFault = "ovn-ebpf.io/chassis-fault"
	// controller: the Node that has the same system-id and keeps it
	ChassisTakenBy = "ovn-ebpf.io/chassis-taken-by"
	// controller, on pods: {"default":{"ip_addresses":["10.244.1.3/24"],"mac_address":"0a:58:..",...}}
	PodNetworks = "k8s.ovn.org/pod-networks"
	// controller, on pods, for tools of ovn-kubernetes' first generation, its programs before ovnkube
	// (docs/first-generation.md): {"ip_address":"10.244.1.3/24",...}
	FirstPod = "ovn"

	// defaultNetwork is the JSON key of the network of all pods. Other networks have other keys.
	defaultNetwork = "default"
)

// OfNodes returns the keys that controller, agents and operators write on Nodes.
func OfNodes() []string {
	return []string{
		NodeSubnets,
		NodeID,
		NodeJoin,
		GatewayConfig,
		ChassisID,
		HostCIDRs,
		ManagementMACs,
		SNATPortRange,
		PodMTU,
		RoutablePods,
		DrainGateway,
		LeavesBy,
		ChassisTakenBy,
		TunnelAddress,
		ChassisFault,
		GatewayRoutes,
	}
}

// Modes of a gateway: how packets of pods leave their node and the cluster.
const (
	// GatewayModeShared: by the gateway router, which has the node's address.
	GatewayModeShared = "shared"
	// GatewayModeLocal: by the management port and the host's own routes.
	GatewayModeLocal = "local"
	// GatewayModeDisabled: the node has no gateway, and its pods use other nodes' gateways. The
	// value in the annotation is "", as in ovn-kubernetes. ParseGateway also accepts "disabled".
	GatewayModeDisabled = "disabled"
)

// ErrNotSet is returned (wrapped) when an object does not carry the annotation.
var ErrNotSet = errors.New("annotation not set")

// Join has a gateway router's addresses on the join switch, with prefix length. A missing family
// has the zero Prefix.
type Join struct{ IPv4, IPv6 netip.Prefix }

// Gateway describes a node's gateway router as the node's agent sees it.
type Gateway struct {
	Mode        string         // GatewayModeShared, GatewayModeLocal or GatewayModeDisabled
	InterfaceID string         // the localnet port, "breth0_<node>"
	MAC         string         // the uplink's, which the gateway router has, too
	Addresses   []netip.Prefix // of the gateway router on the uplink; the agent writes at most one a family
	NextHops    []netip.Addr   // of the default routes
	NodePorts   bool           // the gateway serves NodePorts
	VLAN        int            // tag of the packets on the uplink; 0: none
}

// Route is a route of a gateway router to networks outside, beside those by Gateway.NextHops.
type Route struct {
	To  netip.Prefix `json:"to"`
	Via netip.Addr   `json:"via,omitzero"`  // of To's family; the zero Addr: each destination is a neighbour
	MAC string       `json:"mac,omitempty"` // of Via, if the router cannot resolve it
}

// Pod is a pod's interface on the default network.
type Pod struct {
	Addresses []netip.Prefix // with the node subnet's prefix length
	MAC       net.HardwareAddr
	Gateways  []netip.Addr
}

// get decodes the JSON value of an annotation. Its errors are those of the Parse functions.
func get(annotations map[string]string, key string, into any) error {
	v, ok := annotations[key]
	if !ok {
		return fmt.Errorf("%s: %w", key, ErrNotSet)
	}

	if err := json.Unmarshal([]byte(v), into); err != nil {
		return fmt.Errorf("parse annotation %s: %w", key, err)
	}

	return nil
}

// encode returns v as JSON.
func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // all callers pass types that JSON can represent
	}

	return string(b)
}

// Patch returns the merge patch that sets annotations of an object; a nil value removes one. The
// API server refuses the patch if the object has another UID or resource version than of, unless
// these are empty.
func Patch[V any](of metav1.ObjectMeta, annotations map[string]V) []byte {
	metadata := map[string]any{"annotations": annotations}
	if of.UID != "" {
		metadata["uid"] = of.UID
	}

	if of.ResourceVersion != "" {
		metadata["resourceVersion"] = of.ResourceVersion
	}

	return []byte(encode(map[string]any{"metadata": metadata}))
}

// FormatNodeSubnets returns the value of NodeSubnets.
func FormatNodeSubnets(subnets []netip.Prefix) string {
	return encode(map[string][]netip.Prefix{defaultNetwork: subnets})
}

// ParseNodeSubnets returns the node's pod subnets, at least one.
func ParseNodeSubnets(annotations map[string]string) ([]netip.Prefix, error) {
	m := map[string][]netip.Prefix{}
	if err := get(annotations, NodeSubnets, &m); err != nil {
		return nil, err
	}

	if len(m[defaultNetwork]) == 0 {
		return nil, fmt.Errorf("parse annotation %s: no subnet of network %q", NodeSubnets, defaultNetwork)
	}

	return m[defaultNetwork], nil
}

// ParseNodeID returns the cluster-wide number of the node, from 1.
func ParseNodeID(annotations map[string]string) (int, error) {
	v, ok := annotations[NodeID]
	if !ok {
		return 0, fmt.Errorf("%s: %w", NodeID, ErrNotSet)
	}

	id, err := strconv.Atoi(v)
	if err != nil || id < 1 {
		return 0, fmt.Errorf("parse annotation %s: %q is not a number from 1", NodeID, v)
	}

	return id, nil
}

// joinJSON is the JSON form of Join.
type joinJSON struct {
	IPv4 string `json:"ipv4,omitempty"`
	IPv6 string `json:"ipv6,omitempty"`
}

// FormatJoin returns the value of NodeJoin.
func FormatJoin(j Join) string {
	v := joinJSON{}
	if j.IPv4.IsValid() {
		v.IPv4 = j.IPv4.String()
	}

	if j.IPv6.IsValid() {
		v.IPv6 = j.IPv6.String()
	}

	return encode(map[string]joinJSON{defaultNetwork: v})
}

// ParseJoin returns the gateway router's join addresses.
func ParseJoin(annotations map[string]string) (Join, error) {
	m := map[string]joinJSON{}
	if err := get(annotations, NodeJoin, &m); err != nil {
		return Join{}, err
	}

	var j Join
	for _, field := range []struct {
		text   string
		target *netip.Prefix
	}{{m[defaultNetwork].IPv4, &j.IPv4}, {m[defaultNetwork].IPv6, &j.IPv6}} {
		if field.text == "" {
			continue
		}

		p, err := netip.ParsePrefix(field.text)
		if err != nil {
			return Join{}, fmt.Errorf("parse annotation %s: %w", NodeJoin, err)
		}

		*field.target = p
	}

	return j, nil
}

// gatewayJSON is the JSON form of Gateway. It also has the keys for one address and one next hop,
// because older readers know only those.
type gatewayJSON struct {
	Mode        string         `json:"mode"`
	InterfaceID string         `json:"interface-id,omitempty"`
	MAC         string         `json:"mac-address,omitempty"`
	Addresses   []netip.Prefix `json:"ip-addresses,omitempty"`
	Address     string         `json:"ip-address,omitempty"`
	NextHops    []netip.Addr   `json:"next-hops,omitempty"`
	NextHop     string         `json:"next-hop,omitempty"`
	NodePorts   string         `json:"node-port-enable,omitempty"`
	VLAN        string         `json:"vlan-id,omitempty"`
}

// FormatGateway returns the value of GatewayConfig. For GatewayModeDisabled it ignores all other
// fields.
func FormatGateway(g Gateway) string {
	if g.Mode == GatewayModeDisabled {
		return encode(map[string]gatewayJSON{defaultNetwork: {}})
	}

	v := gatewayJSON{
		Mode: g.Mode, InterfaceID: g.InterfaceID, MAC: g.MAC, Addresses: g.Addresses, NextHops: g.NextHops,
		NodePorts: strconv.FormatBool(g.NodePorts), VLAN: strconv.Itoa(g.VLAN),
	}
	if len(g.Addresses) == 1 {
		v.Address = g.Addresses[0].String()
	}

	if len(g.NextHops) == 1 {
		v.NextHop = g.NextHops[0].String()
	}

	return encode(map[string]gatewayJSON{defaultNetwork: v})
}

// ParseGateway returns the node's gateway. For GatewayModeDisabled all other fields are zero.
func ParseGateway(annotations map[string]string) (Gateway, error) {
	m := map[string]gatewayJSON{}
	if err := get(annotations, GatewayConfig, &m); err != nil {
		return Gateway{}, err
	}

	v, ok := m[defaultNetwork]
	if !ok {
		return Gateway{}, fmt.Errorf("parse annotation %s: no network %q", GatewayConfig, defaultNetwork)
	}

	g := Gateway{
		Mode: cmp.Or(v.Mode, GatewayModeDisabled), InterfaceID: v.InterfaceID, MAC: v.MAC,
		Addresses: v.Addresses, NextHops: v.NextHops, NodePorts: v.NodePorts == "true",
	}
	if v.VLAN != "" {
		vlan, err := strconv.Atoi(v.VLAN)
		if err != nil || vlan < 0 || vlan > 4094 {
			return Gateway{}, fmt.Errorf("parse annotation %s: vlan-id %q is not 0..4094",
				GatewayConfig, v.VLAN)
		}

		g.VLAN = vlan
	}

	switch g.Mode {
	case GatewayModeDisabled:
		return Gateway{Mode: g.Mode}, nil
	case GatewayModeShared, GatewayModeLocal:
	default:
		return Gateway{}, fmt.Errorf("parse annotation %s: mode %q is not shared, local or empty",
			GatewayConfig, g.Mode)
	}

	if _, err := net.ParseMAC(g.MAC); err != nil {
		return Gateway{}, fmt.Errorf("parse annotation %s: mac-address: %w", GatewayConfig, err)
	}

	if n := len(g.Addresses); n == 0 || n > MaxHostAddresses {
		return Gateway{}, fmt.Errorf("parse annotation %s: %d ip-addresses, want 1 to %d",
			GatewayConfig, n, MaxHostAddresses)
	}

	return g, nil
}

// FormatGatewayRoutes returns the value of GatewayRoutes.
func FormatGatewayRoutes(routes []Route) string {
	if len(routes) == 0 {
		return NoGatewayRoutes
	}

	return encode(routes)
}

// NoGatewayRoutes is the value of GatewayRoutes without routes. It means the same as no
// annotation.
const NoGatewayRoutes = "[]"

// ParseGatewayRoutes returns the gateway router's routes that GatewayConfig cannot express.
func ParseGatewayRoutes(annotations map[string]string) ([]Route, error) {
	var routes []Route
	if err := get(annotations, GatewayRoutes, &routes); err != nil {
		return nil, err
	}

	for _, r := range routes {
		if !r.To.IsValid() || r.Via.IsValid() && r.Via.Is4() != r.To.Addr().Is4() {
			return nil, fmt.Errorf("parse annotation %s: route to %s via %s: want a prefix, and a next hop of its family or none",
				GatewayRoutes, r.To, r.Via)
		}

		if _, err := net.ParseMAC(r.MAC); r.MAC != "" && err != nil {
			return nil, fmt.Errorf("parse annotation %s: mac: %w", GatewayRoutes, err)
		}
	}

	return routes, nil
}

// SameGateway reports whether two values of GatewayConfig are valid and mean the same. Values of
// ovn-kubernetes have more fields, which are ignored.
func SameGateway(a, b string) bool {
	gatewayA, errA := ParseGateway(map[string]string{GatewayConfig: a})
	gatewayB, errB := ParseGateway(map[string]string{GatewayConfig: b})

	return errA == nil && errB == nil && reflect.DeepEqual(gatewayA, gatewayB)
}

// ParsePodMTU returns the MTU of the node's pods, in bytes.
func ParsePodMTU(annotations map[string]string) (int, error) {
	v, ok := annotations[PodMTU]
	if !ok {
		return 0, fmt.Errorf("%s: %w", PodMTU, ErrNotSet)
	}

	mtu, err := strconv.Atoi(v)
	if err == nil {
		err = CheckPodMTU(mtu, false) // the annotation does not say whether pods have IPv6
	}

	if err != nil {
		return 0, fmt.Errorf("parse annotation %s: %q: %w", PodMTU, v, err)
	}

	return mtu, nil
}

// CheckPodMTU returns an error for an MTU, in bytes, that a pod's interface cannot have. IPv4
// needs at least 576 (RFC 791) and IPv6 1280 (RFC 8200). The length in an IP header is at most
// 65535.
func CheckPodMTU(mtu int, ipv6 bool) error {
	least := 576
	if ipv6 {
		least = 1280
	}

	if mtu < least || mtu > 65535 {
		return fmt.Errorf("MTU %d: want %d..65535", mtu, least)
	}

	return nil
}

// ParseRoutablePods reports whether the network outside has routes to the node's pods, so that
// their addresses are not translated.
func ParseRoutablePods(annotations map[string]string) (bool, error) {
	switch v, ok := annotations[RoutablePods]; {
	case !ok:
		return false, fmt.Errorf("%s: %w", RoutablePods, ErrNotSet)
	case v == "true", v == "false":
		return v == "true", nil
	default:
		return false, fmt.Errorf("parse annotation %s: %q is not true or false", RoutablePods, v)
	}
}

// FormatHostCIDRs returns the value of HostCIDRs.
func FormatHostCIDRs(addresses []netip.Prefix) string { return encode(addresses) }

// ParseHostCIDRs returns all of the node's own addresses.
func ParseHostCIDRs(annotations map[string]string) ([]netip.Prefix, error) {
	var v []netip.Prefix

	err := get(annotations, HostCIDRs, &v)

	return v, err
}

// FormatManagementMAC returns the value of ManagementMACs.
func FormatManagementMAC(mac net.HardwareAddr) string {
	return encode(map[string]string{defaultNetwork: mac.String()})
}

// ParseManagementMAC returns the MAC address of the node's management port.
func ParseManagementMAC(annotations map[string]string) (net.HardwareAddr, error) {
	m := map[string]string{}
	if err := get(annotations, ManagementMACs, &m); err != nil {
		return nil, err
	}

	mac, err := net.ParseMAC(m[defaultNetwork])
	if err != nil {
		return nil, fmt.Errorf("parse annotation %s: %w", ManagementMACs, err)
	}

	return mac, nil
}

// Drained reports whether an operator has drained the node's gateway. Pods of nodes without a
// gateway leave by other nodes, and health checks send load balancers to other nodes.
func Drained(annotations map[string]string) bool { return annotations[DrainGateway] == "true" }

// FormatLeavesBy returns the value of LeavesBy: nodes' names.
func FormatLeavesBy(names []string) string {
	if names == nil {
		names = []string{}
	}

	return encode(names)
}

// ParseLeavesBy returns the names of the nodes whose gateways the node's pods use.
func ParseLeavesBy(annotations map[string]string) ([]string, error) {
	var names []string

	err := get(annotations, LeavesBy, &names)

	return names, err
}
