// Package frame makes Ethernet frames from what a person says of a packet, and
// reads them from capture files. It decides nothing.
package frame
