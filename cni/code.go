package cni

// Error codes in addition to those of containernetworking/cni/pkg/types. The specification defines
// the first two for STATUS (1.1.0); those from 100 on are specific to ovn-ebpf.
const (
	// CodeNotAvailable: pods cannot be added at the moment; existing pods work.
	CodeNotAvailable uint = 50
	// CodeLimited: pods cannot be added, and existing pods may have lost part of their connectivity.
	CodeLimited uint = 51

	// CodePodGone: the pod does not exist on this node, or was replaced by another one of its name. A
	// retry is of no use.
	CodePodGone uint = 100
	// CodeBadPod: an annotation of the pod is malformed.
	CodeBadPod uint = 101
	// CodeCheckFailed: the interface differs from the state after ADD.
	CodeCheckFailed uint = 102
	// CodeSuperseded: a later sandbox of the same pod has taken the port, or the runtime has requested
	// deletion of this one.
	CodeSuperseded uint = 103
)
