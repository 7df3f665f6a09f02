// Package controlplane finds the addresses by which this process reaches the API server and OVN's
// databases. No Service is served at these addresses and ports, because it could cut off the node
// from these servers: see service.ControlPlane.
//
// The settings have addresses or names. A Finder resolves the names every minute, because an
// address may change while the process runs.
package controlplane
