// Package controller keeps OVN's Northbound database equal to what the
// Kubernetes API says. It is the role behind "ovnkube controller": it puts
// together nb (the database), reconcile (the loop) and an HTTP server with
// /metrics, /healthz and /readyz.
package controller
