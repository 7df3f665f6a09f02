// Package cniserver serves the CNI plugin on a unix socket. For an ADD it finds the pod, asks a
// Source for its interface, and creates the interface.
//
// Requests for one container run one after another, those for different containers concurrently.
// Each ends after two minutes at most, or when the plugin hangs up.
//
// Read handle.go first: it has the commands of the CNI specification. server.go is the HTTP server
// around it, and result.go makes the results and errors of CNI.
package cniserver
