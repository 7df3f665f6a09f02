// Package netns makes, enters and removes network namespaces that have a name
// under /run/netns, as iproute2 knows them.
package netns
