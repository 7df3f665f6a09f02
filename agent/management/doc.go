// Package management maintains the node's management port: the internal OVS port ovn-k8s-mp0 on the
// integration bridge. Through it the host reaches pods, and pods reach their own node.
package management
