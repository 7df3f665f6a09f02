// Package service says what a node serves: from Services, their
// EndpointSlices, pods' host ports and what is known of the node, the front
// ends of the gateway, those of the host's own sockets, and where the kernel
// finds the socket behind a node port.
//
// It is pure. Plan is what one object asks for; Tables puts the plans of all
// objects together, settles who gets a front end that two of them ask for, and
// says what has changed. An object that is gone plans nothing: that is its
// deletion. Start, steady state and a change of the node are the same calls.
//
// Where Kubernetes' documentation is silent, kube-proxy's behaviour is followed
// (pkg/proxy of v1.35: CategorizeEndpoints, newBaseServiceInfo and the nftables
// proxier). Different on purpose: what is refused there or dropped is refused
// here; external addresses inside a service CIDR are ignored; a cluster IP that
// is an address of the host's own (a node-local DNS cache) is left to the host.
package service
