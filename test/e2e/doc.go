// Package e2e drives a lab cluster along every path of packets, and compares the gateways' counters
// with the expected ones.
//
// A Path has a source, a destination, its servers, and the class of its traffic on each node. Run
// sends real TCP and UDP requests of both families over it and returns the observations. The demo
// prints them; the tests add faults.
//
// TestEndToEnd is one lab. Its gateways are configured by OVN_EBPF_E2E_LAYOUT (direct, bridged,
// dedicated), OVN_EBPF_E2E_BACKEND (ebpf, openflow) and OVN_EBPF_E2E_LOCAL. Natively, on OVS's
// userspace datapath, it runs in layout direct, and in layout bridged with openflow. test/vm/suite
// runs all combinations on the kernel datapath. The table in requirements_test.go lists the
// requirements that experience in the field has shown.
//
// TestNested is a lab in underlay mode: its nodes are VMs, and its pods are nested ports.
package e2e
