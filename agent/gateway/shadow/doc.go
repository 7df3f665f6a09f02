// Package shadow compares a sample of live decisions of the gateway's programs with the model in
// package verdict. The model gets the same table entries as the programs. Shadow (shadow.go) reads
// the samples and counts the results, judge.go compares one sample, and question.go makes the input
// of the model from it.
//
// bpf.Monitor takes the sample before the packet is decided. The entries are read a moment later,
// so they may differ from those that the programs used. Each difference is therefore checked again:
//
//  1. read the entries
//  2. run the programs' rules on the frame without effect (bpf.Explainer)
//  3. read the entries again
//
// A mismatch is a difference between rules and model while both reads of the entries are equal. If
// rules and model agree on the second check, the state had changed, and the sample counts as
// skipped.
package shadow
