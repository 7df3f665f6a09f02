// Package ovs writes to the node's own Open vSwitch: the settings that ovn-controller reads,
// bridges, ports, and the static flows of the gateway bridge.
//
// It is the agent's only importer of libovsdb. Every write is one transaction that is derived from
// the cache, so nothing is written when nothing differs. Keys and rows that the agent does not own
// are left unchanged. Watch reports changes in the database; nothing polls.
package ovs
