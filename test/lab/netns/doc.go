// Package netns creates, enters and removes named network namespaces under /run/netns, as iproute2
// does.
package netns
