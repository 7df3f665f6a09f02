// Package ovs is the agent's interface to the node's own Open vSwitch. It leaves keys, rows and
// flows that the agent does not own unchanged, except where a comment says so. It has three parts,
// by the sockets of Open vSwitch:
//
//   - The OVSDB socket, Client (client.go): the settings that ovn-controller reads, bridges and
//     ports. The methods compare the wanted state with a cache of the database, and write only what
//     differs (edit.go). Watch reports changes; nothing polls.
//   - The OpenFlow sockets of bridges: FlowSync writes flows, FlowWatch and WatchVIPs follow them,
//     FlowCounts reads their counters, and AffinityFlows adds flows to br-int. Flows are written
//     and monitored by ovs-ofctl. Counters are read in OpenFlow itself (openflow.go).
//   - The control sockets, Control (control.go): the connection tracker, traces, tunnel neighbours
//     and statistics of ovs-vswitchd, and the state of ovn-controller.
//
// The parameter rundir is the run directory of Open vSwitch, which has the last two kinds of
// sockets. The package is the agent's only importer of libovsdb.
package ovs
