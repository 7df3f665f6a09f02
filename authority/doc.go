// Package authority issues the certificates of OVN's databases, their clients and the nodes, and
// renews them before they expire. Members of the databases and the controller get their
// certificates as Secrets. A node requests its certificate with the CSR API, and gets it for its
// own name only. Kubelet replaces the files of a changed Secret, and all daemons read changed files
// again, so nothing restarts.
//
// Authority.Run (run.go) is the issuer. The pure function Renew (renew.go) decides which Secrets it
// writes, and sign.go answers the requests of nodes. RunNode (node.go) runs on a node and requests
// its certificate.
package authority
