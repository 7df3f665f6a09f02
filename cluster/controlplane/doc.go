// Package controlplane finds the addresses by which this process reaches the API server and OVN's
// databases. It resolves their names again and again, because an address may change while the
// process runs.
package controlplane
