// Package bench defines the results of the packet-path benchmark: rows of a test on a variant
// (row.go), the project's limits for ratios between variants, called bars (gate.go), the baseline
// of CI (baseline.go), and the table that shows them. The package is pure.
//
// The unit is instructions per operation, of kernel and harness together, on one emulated CPU: with
// qemu's -icount shift=0, a nanosecond of guest time is one instruction, whatever the load of the
// machine. Results repeat to a fraction of a percent. They do not include cache misses or the cost
// of a NIC's driver.
//
// Two programs use it. bench/harness runs inside the test VM: it builds one variant of a node's
// network, verifies it, and counts the instructions of every test. bench/run is for users: it boots
// one VM per variant, collects the rows, prints the table, writes the rows in Go's benchmark
// format, and fails if a bar is missed.
//
// bench/stacks, a plugin of qemu, shows where a row's instructions went: it counts them by call
// stack between marks of the harness.
package bench
