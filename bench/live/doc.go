// Package live measures between two nodes in use: requests and replies, and streams, with the
// packets and the CPU time at both ends.
//
// One node serves one peer for a limited time; the other measures. Neither node is changed, except
// by the caller's Switch between rounds. CPU time is that of the whole machine, from /proc/stat: it
// includes other processes, and no idle figure is subtracted.
package live
