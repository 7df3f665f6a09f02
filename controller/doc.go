// Package controller is the program "ovnkube controller" in overlay mode, which keeps OVN's
// Northbound database equal to what the Kubernetes API says. Run puts the parts together: nb (the
// database), reconcile (the loop), sb and raft (chassis, and state of the databases), and an HTTP
// server with /metrics, /healthz and /readyz. Config has the settings.
//
// To see how an object becomes rows, read reconcile and then plan.
package controller
