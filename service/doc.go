// Package service defines the meaning of a Service, and of a pod with host ports: whether it is
// proxied, its addresses with the reason of each refusal, its ports, its endpoints with their state
// and hints, and which of two conflicting objects gets a frontend.
//
// The package is pure. The controller renders its values as load balancers of OVN
// (controller/plan), agents as frontends of a node (agent/service). Neither reads a Service or an
// EndpointSlice itself, so the two sides cannot disagree.
//
// Where the documentation of Kubernetes is silent, the package follows kube-proxy (pkg/proxy of
// v1.35: CategorizeEndpoints and newBaseServiceInfo), and for host ports the portmap plugin.
package service
