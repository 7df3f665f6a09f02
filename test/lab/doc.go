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
// The lab gives a node what a machine has before our agent comes: an uplink
// with addresses and routes, running daemons, a system-id. Bridges, encapsulation
// and mappings are the agent's. Without an API server there will be no agent;
// then the lab itself connects ovn-controller, so that chassis register.
//
// There is no kubelet: files and functions that play its part are named standin. With
// Options.Pods there is a controller manager and a scheduler, and RunKubelet runs on every node, so
// that pods are made through the API server. Without it AddPod plays all of their parts.
//
// All processes are detached and recorded below Options.Dir. Whoever comes later
// finds the lab with Open, and Down works from what is recorded and from the
// names of the namespaces, also after Up was killed half way. Down ends every
// process that is in one of the lab's namespaces, whoever started it.
package lab
