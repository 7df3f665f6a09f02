// Package plan turns the objects of a Kubernetes cluster into the rows that
// the OVN Northbound database must hold for them.
//
// Everything is planned per owner: a Key names one owner (the cluster, a node,
// a pod, a service), and Rows returns all rows that this owner has, sorted and
// complete. An owner that does not exist, or does not yet have what its rows
// need, owns fewer rows or none: creation, change, deletion and pruning are
// the same question.
//
// The package is pure. It reads the Cluster it is given, allocates nothing
// (addresses come from annotations, see package annotation), reads no clock
// and talks to nobody. Rows refer to each other by name; package nb resolves.
//
// Names and shapes of rows are ovn-kubernetes's; columns are those of
// OVN 23.03.
package plan
