package service

import model "github.com/ovn-ebpf/ovn-ebpf/service"

// The model's names, for packages that need nothing else of it.
type (
	Key     = model.Key
	Objects = model.Objects
)
