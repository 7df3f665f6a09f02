// Package ovs writes to the node's own Open vSwitch: the settings that
// ovn-controller reads, bridges, ports, and the static flows of the gateway
// bridge.
//
// It is the agent's only importer of libovsdb. Every write is one transaction,
// is derived from the cache (so that nothing is written when nothing differs)
// and leaves keys and rows that are not ours alone. Changes in the database
// are delivered as wake-ups by Watch; nothing polls.
package ovs
