package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// errUsage is a mistake on the command line, exit status 2.
var errUsage = errors.New("usage: serve|http|reach|tcp|udp|await|sctp|frags|proto|later|pull|hold|stream|sweep|advertise [ADDR] [flags]")

// Main runs one subcommand and returns its exit status: 0 for success, 1 for failure, 2 for a
// mistake in args. Results go to stdout, errors to standard error. SIGTERM and SIGINT end it early.
func Main(args []string, stdout io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	err := run(ctx, args, stdout)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}

	fmt.Fprintln(os.Stderr, "traffic:", err)

	if errors.Is(err, errUsage) {
		return 2
	}

	return 1
}

// options are the options of all clients.
type options struct {
	addr     string
	src      string
	sport    int
	timeout  time.Duration
	duration time.Duration
	interval time.Duration
	udp      bool
	ports    string
	count    int
	options  bool
	proto    int
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}

	command, args := args[0], args[1:]
	if command == "serve" {
		return serveCommand(ctx, args, stdout)
	}

	if command == "http" {
		return httpCommand(ctx, args, stdout)
	}

	if command == "reach" {
		return reachCommand(ctx, args, stdout)
	}

	o, err := parse(command, args)
	if err != nil {
		return err
	}

	switch command {
	case "tcp":
		return repeat(ctx, o, askTCP, stdout)
	case "udp":
		return repeat(ctx, o, askUDP, stdout)
	case "await":
		report, err := await(ctx, o)
		return errors.Join(json.NewEncoder(stdout).Encode(report), err)
	case "sctp":
		return repeat(ctx, o, askSCTP, stdout)
	case "frags":
		return repeat(ctx, o, askFragments, stdout)
	case "proto":
		return repeat(ctx, o, askProto, stdout)
	case "later":
		return repeat(ctx, o, later, stdout)
	case "pull":
		return repeat(ctx, o, pull, stdout)
	case "hold":
		report, err := hold(ctx, o)
		return errors.Join(json.NewEncoder(stdout).Encode(report), err)
	case "stream":
		report, err := stream(ctx, o)
		return errors.Join(json.NewEncoder(stdout).Encode(report), err)
	case "advertise":
		return repeat(ctx, o, advertise, stdout)
	case "sweep":
		report, err := sweep(ctx, o)
		return errors.Join(json.NewEncoder(stdout).Encode(report), err)
	}

	return errUsage
}

// repeat makes o.count requests, one after another, and prints each reply on a line. It ends at the
// first failure.
func repeat(ctx context.Context, o options, ask func(context.Context, options) (string, error), w io.Writer) error {
	for range o.count {
		answer, err := ask(ctx, o)
		if err != nil {
			return err
		}

		if _, err := fmt.Fprintln(w, answer); err != nil {
			return err
		}
	}

	return nil
}

// parse accepts ADDR before, among or after the flags.
func parse(command string, args []string) (options, error) {
	o := options{}
	f := flag.NewFlagSet("traffic "+command, flag.ContinueOnError)
	f.StringVar(&o.src, "src", "", "source `address`")
	f.IntVar(&o.sport, "sport", 0, "source `port`")
	f.DurationVar(&o.timeout, "timeout", 5*time.Second, "longest wait for an answer, or for a connection")
	f.DurationVar(&o.duration, "duration", 10*time.Second, "total duration")
	f.DurationVar(&o.interval, "interval", 100*time.Millisecond, "time between numbers")
	f.BoolVar(&o.udp, "udp", false, "over UDP")
	f.IntVar(&o.count, "n", 1, "`number` of requests of tcp, udp, sctp, frags, proto, later, pull and advertise")
	f.BoolVar(&o.options, "dstopts", false, "send IPv6 destination options with udp")
	f.IntVar(&o.proto, "proto", 47, "IP protocol `number`")
	f.StringVar(&o.ports, "ports", "1-1024", "destination ports `FIRST-LAST`")

	for len(args) > 0 {
		if !strings.HasPrefix(args[0], "-") && o.addr == "" {
			o.addr, args = args[0], args[1:]
			continue
		}

		if err := f.Parse(args); err != nil {
			return o, fmt.Errorf("%w: %w", errUsage, err)
		}

		if f.NArg() == len(args) {
			return o, fmt.Errorf("%w: unexpected %q", errUsage, args[0])
		}

		args = f.Args()
	}

	if o.addr == "" {
		return o, fmt.Errorf("%w: no address", errUsage)
	}

	return o, nil
}
