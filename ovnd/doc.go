// Package ovnd starts the daemons of OVN and Open vSwitch in containers. Each function prepares
// what one daemon needs and returns the command line that the container then becomes (Become), so
// that a daemon gets its signals itself and kubelet restarts each alone. The programs are Debian's.
//
// Central is OVN's control plane on one of its members: Database, Relay and Northd start its
// daemons. Backup and Restore, for operators, are also methods of it. Switch is a node's Open
// vSwitch: Database, Daemon and Controller start its daemons. Its database has a mark, by which
// ovnd does not change the database of an Open vSwitch that is the node's own (mark.go).
package ovnd
