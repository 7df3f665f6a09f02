// Package live measures between two nodes that carry traffic already: requests and
// answers, and streams, with the packets and the CPU time that they took at both ends.
//
// One node serves, for one peer and for a limited time; the other measures. Nothing
// is changed on either but what the caller's Switch changes between rounds. CPU time
// is the whole machine's, from /proc/stat: what else runs there is in it, and no
// figure of an idle machine is taken off.
package live
