// Package authority issues the certificates of OVN's databases, their clients and the nodes, and
// renews them before they expire. Members and the controller get theirs as Secrets. A node requests
// its own by the CSR API, and gets it for its own name only. Kubelet replaces the files of a
// changed Secret, and all daemons read changed files again, so nothing restarts.
package authority
