// Package verdict is the specification of the gateway demultiplexer: what
// becomes of each packet at a node's uplink, of each that OVN sends and, where the
// host sends by the gateway bridge, of each of the host's; and why.
//
// It is a model, not a data path. A frame, the configuration, the tables and
// the time go in; a reason comes out, the verdict it implies, and what it
// changes in the tables. It does no I/O and reads no clock. Every backend is
// tested against it, packet by packet, and the table of cases in
// docs/verdicts.md is made from it.
//
// It does not know the layout, nor what a backend does about a verdict. What the
// data path does and nobody wants is in the model as well, so that changing it is
// a decision: a packet's length fields are not checked, and early fragments are
// sent to both sides.
//
// Package corpus has the packets for the tests of the backends.
package verdict
