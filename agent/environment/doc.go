// Package environment looks for faults of the node that the agent cannot repair: kube-proxy that
// still runs, a clock that differs from the API server's, a full file system. Each fault is a line
// of /readyz and an Event about the Node.
//
// Watch runs the checks. Those of this package are in checks.go. The agent adds those that need its
// other parts (faults.go in package agent).
package environment
