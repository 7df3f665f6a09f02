package service

import model "github.com/ovn-ebpf/ovn-ebpf/service"

// Names of the model, for packages that need nothing else from it.
type (
	Key     = model.Key
	Objects = model.Objects
)
