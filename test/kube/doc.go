// Package kube builds and runs a real Kubernetes API server for tests and for
// the lab: kube-apiserver on Debian's etcd, nothing else. There is no
// controller manager, scheduler or kubelet; who needs what they do plays their
// part.
package kube
