// Package service computes what a node serves. Its inputs are Services, their EndpointSlices, pods'
// host ports, and the state of the node. Its results are the frontends of the gateway, the
// frontends of the host's sockets, and the sockets behind node ports.
//
// The package is pure. A Plan is what one object requests. Tables merges the plans of all objects,
// resolves conflicts between them, and reports changes. A deleted object has a nil plan. Start,
// steady state and a change of the node use the same calls.
//
// Read plan.go first, which has the types and New, then service.go and pod.go, which plan Services
// and host ports. Tables in tables.go merges the plans, and changes.go computes the differences.
// The package ovn-ebpf/service, imported as model, has the parts that controller and agent share.
//
// Where the documentation of Kubernetes is silent, the package follows kube-proxy (pkg/proxy of
// v1.35: CategorizeEndpoints, newBaseServiceInfo and the nftables proxier), with these exceptions:
//   - What kube-proxy rejects or drops is rejected here.
//   - External addresses inside a service CIDR are ignored.
//   - A cluster IP that the host itself has (a node-local DNS cache) is left to the host.
package service
