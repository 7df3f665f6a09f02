// Package cniserver answers the CNI plugin on a unix socket: it finds the pod,
// waits for the address that the controller gives it, and has it wired.
//
// Requests for one container are served one after the other, those for
// different containers at the same time; each within two minutes or until the
// plugin hangs up.
package cniserver
