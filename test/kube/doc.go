// Package kube builds and runs a real Kubernetes API server for tests and for the lab:
// kube-apiserver with Debian's etcd. Controller manager, scheduler and kubelet are missing; tests
// that need them play their parts.
package kube
