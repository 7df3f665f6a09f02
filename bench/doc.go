// Package bench holds what the packet-path benchmark's numbers mean: the row that
// one test of one variant gives, the ratios between variants, the bars that the
// project holds itself to, and the table that shows them. It is pure.
//
// Two programs use it. bench/harness runs inside the test VM: it builds one
// variant of a node's network, makes sure that it is what it claims to be, and
// counts the instructions of every test. bench/run is what a user starts: it boots
// one VM a variant, collects the rows, prints the table, writes the rows as JSON and
// fails when a bar is missed.
//
// bench/stacks, a plugin of qemu, tells where a row's instructions went: it counts
// them by call stack, all of them, between marks of the harness.
//
// The unit is instructions per operation, of kernel and harness together, on one
// emulated CPU: qemu's -icount shift=0 makes a nanosecond of guest time one
// instruction, whatever the machine beneath is busy with. It repeats to a fraction of
// a percent. It does not know cache misses, nor what a NIC's driver costs.
package bench
