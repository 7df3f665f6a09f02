// Package raft asks each server of OVN's databases how it and its cluster do, for
// the metrics. What every server tells its clients comes from its database _Server
// (ovsdb-server(5), table Database); what only its control socket tells is there
// where that is on this machine.
package raft
