package main

import (
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline/commandtest"
)

// TestDocuments: every command that a document tells the reader to type is there, with every
// flag that it has in the document.
func TestDocuments(t *testing.T) {
	typed := commandtest.Documents(t, "../..", commandtest.Program{Names: "ovnkube|ovn-k8s-[a-z-]+", Root: root, Invoked: invoked})
	if typed < 25 {
		t.Errorf("%d commands in the documents: are they still found?", typed)
	}
}
