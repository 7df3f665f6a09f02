package main

import (
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline/commandtest"
)

// Every command in a document exists, with the flags that the document uses.
func TestDocuments(t *testing.T) {
	typed := commandtest.Documents(t, "../..", commandtest.Program{Names: "ovnkube|ovn-k8s-[a-z-]+", Root: root, Invoked: commandArguments})
	if typed < 25 {
		t.Errorf("%d commands in the documents: are they still found?", typed)
	}
}
