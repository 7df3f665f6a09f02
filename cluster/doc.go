// Package cluster is the home of what controller and agents share: how they read the cluster
// (package informer), where they meet in it (package annotation) and which addresses both use on
// every node (package masquerade). It has ranges of ports, and
// membership in networks, itself. Package service, at the top,
// interprets Services.
package cluster
