// Package lab runs several OVN nodes on one machine: real ovsdb-server, northd,
// ovs-vswitchd and ovn-controller, every node in a network namespace of its
// own, with a fabric between them and an outside host that is the nodes'
// router.
//
//	ovnlab-fab   bridge; OVN's databases, northd, API server, controller   172.30.0.1    fd00:172:30::1
//	ovnlab-n<i>  a node: uplink eth0, Open vSwitch, ovn-controller, agent  172.30.0.1<i> fd00:172:30::1<i>
//	ovnlab-ext   the outside host and default gateway                      172.30.0.200  fd00:172:30::200
//	             and, behind it on its loopback,                           198.51.100.1  2001:db8:51::1
//	ovnlab-p-*   pods
//
// The lab provides a node with the state of a machine before the agent's start: an uplink with
// addresses and routes, running daemons, a system-id. Bridges, encapsulation and mappings are the
// agent's task. Without an API server there is no agent; then the lab itself connects
// ovn-controller, so that chassis register.
//
// With Options.VMs, the nodes are hypervisors of a small cloud, and its VMs are the nodes of
// Kubernetes, in underlay mode. A VM is a namespace whose NIC is a logical port:
//
//	ovnlab-vm<i>   10.0.0.1<i>; its pods have nested ports with addresses of 10.244.0.0/28 + 16*i
//	ovnlab-plain   10.0.0.100, no node of Kubernetes
//
// The NIC is a veth. In a guest of test/vm that has pairs of virtio NICs, the first VMs get these.
//
// A logical router, 172.30.0.250 on the fabric, connects them, central and the outside host without
// NAT. The lab writes the logical network, and the pools that a controller would publish to agents.
//
// There is no kubelet: files and functions that play its part are named standin. With Options.Pods,
// a controller manager and a scheduler run, and RunKubelet runs on every node, so that pods are
// created through the API server. Otherwise AddPod plays all of these parts.
//
// All processes are detached and recorded below Options.Dir. Later processes find the lab with
// Open. Down works from the records and the names of the namespaces, also after Up was killed
// midway. Down ends every process in one of the lab's namespaces.
package lab
