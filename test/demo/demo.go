// Package demo is the frame of the demos: it brings a lab up, shows it, and takes it down.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

// Demo is a demo of a lab. All functions but Done must be set.
type Demo struct {
	Dir, Name string // of the lab, unless a flag names another directory
	Default   bool   // it is the lab that ovnlab uses without flags
	// Up brings the lab up with the options, to which it adds.
	Up func(ctx context.Context, o lab.Options) (*lab.Lab, error)
	// Show shows the lab of Up.
	Show func(ctx context.Context, w io.Writer) error
	// Done is called when the lab is down, and returns lines for the end; nil: none.
	Done func() string
}

// Main parses the flags, runs the demo, and exits.
func Main(d Demo) {
	var o lab.Options
	flag.StringVar(&o.BinDir, "bin", "bin", "`directory` of the built programs")
	flag.StringVar(&o.CacheDir, "cache", kube.CacheDir(), "`directory` for what is built once")
	flag.StringVar(&o.Dir, "dir", d.Dir, "`directory` of the lab")

	keep := flag.Bool("keep", false, "leave the lab running at the end")

	flag.Parse()

	run := func() int {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()

		if err := d.run(ctx, o, *keep, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
			return 1
		}

		return 0
	}
	if *keep { // the lab outlives the demo
		os.Exit(run())
	}

	os.Exit(tether.Run(run))
}

func (d Demo) run(ctx context.Context, o lab.Options, keep bool, w io.Writer) error {
	start := time.Now()

	o.Name, o.Owned, o.Progress = d.Name, !keep, w
	if keep { // the user may need kubectl
		if _, err := kube.BuildForPods(ctx, o.CacheDir, w); err != nil {
			return err
		}
	}

	l, err := d.Up(ctx, o)
	if err != nil {
		return err
	}

	err = d.Show(ctx, w)

	if keep {
		which := "--dir " + o.Dir
		if o.Dir == d.Dir && d.Default {
			which = ""
		}

		fmt.Fprintln(w, "\nThe lab keeps running.")
		l.Next(w, o.BinDir+"/ovnlab", which)

		return err
	}

	fmt.Fprintln(w, "\ntaking the lab down")

	err = errors.Join(err, l.Down(context.WithoutCancel(ctx)))

	residue, residueErr := lab.Residue(o.Dir, o.Name)
	if len(residue) > 0 {
		err = errors.Join(err, fmt.Errorf("left behind: %s", strings.Join(residue, "; ")))
	}

	if err = errors.Join(err, residueErr); err == nil {
		if d.Done != nil {
			fmt.Fprintf(w, "\n%s", d.Done())
		}

		fmt.Fprintf(w, "done in %s, nothing left behind\n", time.Since(start).Round(time.Second))
	}

	return err
}
