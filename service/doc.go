// Package service holds what a Service, or a pod with host ports, means: whether it is proxied, its
// addresses with the reason of each refusal, its ports, its endpoints with their state and
// hints, and which of two objects gets a frontend that both ask for.
//
// The package is pure. The controller renders its values as load balancers of OVN
// (controller/plan), agents as frontends of a node (agent/service). Neither reads a Service or an
// EndpointSlice itself, so the two sides cannot disagree.
//
// Where the documentation of Kubernetes is silent, kube-proxy's behaviour is followed (pkg/proxy of
// v1.35: CategorizeEndpoints and newBaseServiceInfo), and for host ports that of the portmap
// plugin.
package service
