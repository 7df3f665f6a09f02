// Package e2e drives a cluster in the lab along every path a packet can take,
// and holds the gateways' counters against what each path must have moved.
//
// A Path is one of the ways: from, to, who serves, which class of traffic it
// is on each node. Run makes real TCP and UDP requests of both families over
// it and returns what it saw. The demo prints that; the tests add faults.
//
// TestEndToEnd is one lab, however its gateways are wired: OVN_EBPF_E2E_LAYOUT
// (direct, bridged, dedicated), OVN_EBPF_E2E_BACKEND (ebpf, openflow) and
// OVN_EBPF_E2E_LOCAL say so. Natively, on OVS's userspace datapath, run direct and
// bridged with openflow; the kernel's datapath, with all of them, is test/vm/suite's.
// What must be right, from the field's history, is the table of musts_test.go.
package e2e
