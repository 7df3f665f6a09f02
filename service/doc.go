// Package service defines the meaning of a Service, and of a pod with host ports: whether it is
// proxied, its addresses with the reason of each refusal, its ports, its endpoints with their state
// and hints, and which of two conflicting objects gets a frontend. A frontend is an address,
// protocol and port at which clients reach a Service or a host port.
//
// The package is pure. The controller renders its values as load balancers of OVN
// (controller/plan), agents as frontends of a node (agent/service). Neither reads a Service or an
// EndpointSlice itself, so the two sides cannot disagree.
//
// Begin with New in service.go:
//
//   - service.go, address.go, protocol.go and bound.go: a Service's addresses and ports
//   - endpoint.go and target.go: its endpoints; hostport.go: a pod's host ports
//   - keptport.go, controlplane.go and host.go: frontends that are reserved for nodes and their servers
//   - owner.go: which of two objects gets a frontend that both claim
//   - units.go, cost.go, budget.go, ledger.go and accounts.go: which objects are served if all together
//     need more entries than a node's tables have
//
// Where the documentation of Kubernetes is silent, the package follows kube-proxy (pkg/proxy of
// v1.35: CategorizeEndpoints and newBaseServiceInfo), and for host ports the portmap plugin.
package service
