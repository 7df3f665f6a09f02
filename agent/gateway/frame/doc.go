// Package frame builds Ethernet frames from a description of a packet (Spec, Answer), reads them
// from capture files (FromCapture), writes them to capture files (Writer), and formats them for
// people (Describe) and for ovn-trace (Microflow). Package verdict parses frames for the gateway's
// decisions.
package frame
