// Package ovnd starts the daemons of OVN and Open vSwitch in containers. Each function prepares
// what one daemon needs and returns the command line that the container then becomes, so that a
// daemon gets its signals itself and kubelet restarts each alone. The programs are Debian's.
package ovnd
