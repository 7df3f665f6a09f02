// Package kubelets runs a Kubernetes cluster on one machine, with ovn-ebpf deployed as by a user:
// nodes of package lab with real kubelets and containerd, the control plane on the first node,
// CoreDNS, no kube-proxy, and the Helm chart with images of this tree. It runs upstream's own
// tests on it.
//
// A node is a network, mount, pid and UTS namespace. Open vSwitch and ovn-controller run beside it,
// as on a host. The host directories that the manifests mount (/run/openvswitch, /run/ovn,
// /etc/cni/net.d, /opt/cni/bin, a bpffs) belong to the node.
package kubelets
