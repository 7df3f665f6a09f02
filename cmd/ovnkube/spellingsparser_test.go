package main

import (
	"github.com/spf13/pflag"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline"
)

func understood(argv []string) string {
	tree := root()

	c, rest, err := tree.Find(commandline.Normalize(tree, commandArguments(argv)))
	if err != nil || c.ParseFlags(rest) != nil {
		return "error"
	}

	var set []string

	c.Flags().Visit(func(f *pflag.Flag) { set = append(set, f.Name+"="+f.Value.String()) })

	return understoodLine(c.CommandPath(), set, c.Flags().Args())
}
