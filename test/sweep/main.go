// Command sweep removes what killed tests and labs left on the machine. Package leftover says what
// it recognises.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/ovn-ebpf/ovn-ebpf/test/leftover"
)

const usage = `usage: go run ./test/sweep [-n]

Removes what killed tests and labs of this project left on the machine, with one line per removal:
labs, network namespaces, daemons, directories in /run, /tmp and /var/tmp with their mounts and eBPF
pins, and cgroups. It finds them by our names and records. A part whose owner runs stays, with a line
that names the process; so does everything of an installed agent. The exit status is 0 when nothing
stale is left. Needs root.

`

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "sweep:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("sweep", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	o := leftover.Options{Out: stdout}
	flags.BoolVar(&o.List, "n", false, "only list what would be removed")

	if err := flags.Parse(args); err != nil {
		return err
	}

	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}

	if os.Geteuid() != 0 {
		return errors.New("not root: only root sees all processes and may remove their leftovers")
	}

	return leftover.Sweep(o)
}
