// Command trafficmain is package traffic as a separate program, for tests.
package main

import (
	"os"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

func main() { os.Exit(traffic.Main(os.Args[1:], os.Stdout)) }
