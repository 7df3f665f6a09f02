// Package live measures between two nodes in use: requests and replies, and streams, with the
// packets and the CPU time at both ends.
//
// One node serves one peer for a limited time (Serve), the other one measures (Measure, or Rounds
// with several backends). Neither node is changed, except by the function with which the caller of
// Rounds switches the backend. CPU time is that of the whole machine, from /proc/stat: it includes
// other processes, and no idle figure is subtracted.
//
// Each connection over TCP begins with a request as a line of JSON (request). It names a test of
// TCP, or asks for the server's usage. Datagrams over UDP are echoed without a request.
package live
