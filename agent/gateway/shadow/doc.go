// Package shadow compares a sample of live decisions of the gateway's programs with
// the model in package verdict, which is given the same entries of the same tables.
//
// The sample is bpf.Monitor's, taken before the packet is decided; the entries are
// read a moment later, so they may be others than the programs saw. What differs is
// therefore asked again: the entries are read, the programs' rules are run dry on the
// frame (bpf.Explainer), the entries are read once more. A mismatch is what the
// rules and the model still decide otherwise between two reads that are the same. What
// they agree on by then had changed meanwhile; it is counted as skipped.
package shadow
