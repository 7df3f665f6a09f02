// Package kubelets runs a whole Kubernetes cluster on one machine, with our
// network in it as a user deploys it: nodes of package lab with real kubelets
// and containerd, the control plane on the first of them, CoreDNS, no
// kube-proxy; deploy/base with an image made of this tree. It runs upstream's
// own tests on it.
//
// A node is a network, mount, pid and UTS namespace. Open vSwitch and
// ovn-controller are the host's: they run beside, and what the manifests mount of
// the host (/run/openvswitch, /run/ovn, /etc/cni/net.d, /opt/cni/bin, a bpffs)
// is the node's own.
package kubelets
