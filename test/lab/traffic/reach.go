package traffic

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// reachCommand sends one request to each target concurrently. It prints a line for each in the
// given order: the target and the reply, or "-" without a reply in time. A target is tcp/ADDR or
// udp/ADDR; UDP requests are repeated.
func reachCommand(ctx context.Context, args []string, stdout io.Writer) error {
	f := flag.NewFlagSet("traffic reach", flag.ContinueOnError)

	timeout := f.Duration("timeout", time.Second, "longest wait for an answer")
	if err := f.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}

	answers := make([]string, f.NArg())

	var group errgroup.Group

	for i, target := range f.Args() {
		protocol, addr, _ := strings.Cut(target, "/")
		if _, err := netip.ParseAddrPort(addr); err != nil || protocol != "tcp" && protocol != "udp" {
			return fmt.Errorf("%w: %q is not tcp/ADDR or udp/ADDR", errUsage, target)
		}

		o := options{addr: addr, timeout: *timeout}

		ask := askTCP
		if protocol == "udp" {
			ask = askUDP
		}

		group.Go(func() error {
			answers[i] = "-"
			if answer, err := ask(ctx, o); err == nil {
				answers[i] = answer
			}

			return nil
		})
	}

	_ = group.Wait() // a missing reply is a result

	for i, target := range f.Args() {
		if _, err := fmt.Fprintln(stdout, target, answers[i]); err != nil {
			return err
		}
	}

	return nil
}
