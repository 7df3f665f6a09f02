// Package frame builds Ethernet frames from a description of a packet, and reads them from capture
// files. It decides nothing.
package frame
