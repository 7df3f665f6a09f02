// Package healthcheck answers health checks of load balancers.
//
// A Service of externalTrafficPolicy Local has a health check port on every node. It returns the
// number of local endpoints, with status 503 if there are none. Another port serves the health of
// the node as a whole, for other load balancers. Ports, status codes, headers and JSON match
// kube-proxy (pkg/proxy/healthcheck of v1.35), so cloud controllers need no changes.
package healthcheck
