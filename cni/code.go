package cni

// Codes of errors beside those of containernetworking/cni/pkg/types. The first
// two are the specification's for STATUS (1.1.0), those from 100 on our own.
const (
	// CodeNotAvailable: no pod can be added at the moment; those there are work.
	CodeNotAvailable uint = 50
	// CodeLimited: as CodeNotAvailable, and pods that are there may have lost
	// part of their connectivity.
	CodeLimited uint = 51

	// CodePodGone: the API server has no such pod on this node, or another one
	// of the name. Trying again is of no use.
	CodePodGone uint = 100
	// CodeBadPod: an annotation of the pod is malformed.
	CodeBadPod uint = 101
	// CodeCheckFailed: the interface is not what ADD has made.
	CodeCheckFailed uint = 102
	// CodeSuperseded: a later sandbox of the same pod has taken the port, or the
	// runtime has asked to delete this one.
	CodeSuperseded uint = 103
)
