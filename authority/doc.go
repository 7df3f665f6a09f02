// Package authority issues the certificates by which OVN's databases, their clients and each other
// know themselves, as Secrets of the cluster, and renews them before they expire. Kubelet replaces
// the files of a changed Secret, and all daemons read changed files again, so nothing restarts.
package authority
