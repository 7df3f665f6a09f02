// Package management maintains the node's management port: the internal OVS port ovn-k8s-mp0 on the
// integration bridge. Through it the host reaches pods, and pods reach their own node. In local
// gateway mode, packets of pods to other networks also reach the host by it.
//
// PlanFor is pure, and derives addresses and routes from the node's subnets. Port applies them.
package management
