package main

import (
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline/commandtest"
)

func TestHelp(t *testing.T) { commandtest.Help(t, root) }

// TestDocuments: every command in a document exists.
func TestDocuments(t *testing.T) {
	if typed := commandtest.Documents(t, "../..", commandtest.Program{Names: "ovnlab", Root: root}); typed < 20 {
		t.Errorf("%d commands in the documents: are they still found?", typed)
	}
}

// TestMistakes: each mistake is one line that names it.
func TestMistakes(t *testing.T) {
	for typed, want := range map[string]string{
		"up --nodes 0":     "ovnlab: up: --nodes 0 is not 1 to 50\n",
		"up --vms 9":       "ovnlab: up: --vms 9 is not 0 to 8\n",
		"up -nodes=0":      "ovnlab: up: --nodes 0 is not 1 to 50\n",
		"sttus":            `ovnlab: "sttus" is no command, did you mean status?; see 'ovnlab --help'` + "\n",
		"exec node1":       "ovnlab: exec: give a host and a command, like: ovnlab exec node1 ip address\n",
		"exec -dirr=/ x y": "ovnlab: exec: unknown flag: --dirr; see 'ovnlab exec --help'\n",
		"down -name=x all": `ovnlab: down: unknown command "all" for "ovnlab down"` + "\n",
	} {
		if got := commandtest.Mistake(t, root(), strings.Fields(typed)...); got != want {
			t.Errorf("%s: %q, want %q", typed, got, want)
		}
	}
}
