// Package healthcheck answers load balancers that ask whether a node serves.
//
// A Service of externalTrafficPolicy Local has a health check port on every node:
// it says how many endpoints the Service has here, and 503 without any.
// Beside it there is one for the node as a whole, which other load balancers ask.
// Ports, status codes, headers and JSON are kube-proxy's (pkg/proxy/healthcheck of
// v1.35), so that clouds' controllers need not know the difference.
package healthcheck
