// Package verdict is the specification of the gateway demultiplexer: what
// becomes of each packet at a node's uplink and of each that OVN sends, and why.
//
// It is a model, not a data path. A frame, the configuration, the tables and
// the time go in; a reason comes out, the verdict it implies, and what it
// changes in the tables. It does no I/O and reads no clock. Every backend is
// tested against it, packet by packet, and the table of cases in
// docs/verdicts.md is made from it.
//
// What the data path of today does and nobody wants is in the model as well,
// so that changing it is a decision: a later fragment that overtakes its first
// goes to the host, and a packet's length fields are not checked.
package verdict
