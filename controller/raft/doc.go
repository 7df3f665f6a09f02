// Package raft reads the state of each server of OVN's databases and of its cluster, for the
// metrics. The part that clients see comes from the server's database _Server (ovsdb-server(5),
// table Database). The part that only the control socket reports is available if the socket is on
// this machine.
//
// raft.go asks the servers: Database.Status returns a Server for each endpoint. metrics.go makes
// metrics of the result. Servers and control sockets both speak JSON-RPC, one request for each
// connection here.
package raft
