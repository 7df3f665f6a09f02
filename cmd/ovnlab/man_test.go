package main

import (
	"flag"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline/commandtest"
)

var man = flag.String("man", "", "directory to write the man pages to")

func TestMan(t *testing.T) { commandtest.Man(t, root(), *man) }
