// Command run is the packet-path benchmark: it boots the test VM once for each
// variant, lets bench/harness measure there, prints the table and fails if a bar is
// missed.
//
//	go run ./bench/run [-kernel 6.12] [-variants no-ovs,helper,masquerade,ebpf] [-out build/bench.json]
//	go run ./bench/run -profile docs/profile.md
//
// The second form tells where the instructions go, by bench/stacks in qemu; it needs
// gcc, and takes two to three minutes.
//
// It must be started in the module's top directory, as `make bench` does, on a
// machine that has qemu and OVS; it changes nothing on the machine but the cache of
// test/vm, and takes about half a minute a variant.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type config struct {
	kernel   string
	variants []string
	out      string
	document string        // Markdown to put the table into; "" = none
	timeout  time.Duration // of one boot
	profile  string        // Markdown to put profiles into, instead of the table; "" = none
	extra    []string      // further arguments of the harness
}

func parse(args []string, stderr io.Writer) (config, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var c config
	flags.StringVar(&c.kernel, "kernel", "6.12", "the guest's kernel, as test/vm/run names it")
	flags.StringVar(&c.out, "out", "build/bench.json", "where the rows go")
	flags.StringVar(&c.document, "document", "", "Markdown file with marks to put the table between")
	flags.StringVar(&c.profile, "profile", "", "Markdown file with marks: put there where the instructions go, instead of measuring all")
	flags.DurationVar(&c.timeout, "timeout", 5*time.Minute, "of one variant")
	variants := flags.String("variants", strings.Join(bench.Variants(), ","), "which to measure; bars need all")
	tests := flags.String("tests", "", "which tests to measure, default all")
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	if flags.NArg() > 0 {
		return config{}, fmt.Errorf("parse arguments: unexpected %q", flags.Arg(0))
	}
	c.variants = strings.Split(*variants, ",")
	for _, v := range c.variants {
		if !slices.Contains(bench.AllVariants(), v) {
			return config{}, fmt.Errorf("parse -variants: no variant %q: one of %s", v, strings.Join(bench.AllVariants(), ", "))
		}
	}
	if *tests != "" {
		c.extra = []string{"-tests", *tests}
	}
	return c, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := checkTools(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ovn-ebpf-bench")
	if err != nil {
		return fmt.Errorf("make work directory: %w", err)
	}
	defer os.RemoveAll(dir)
	harness := filepath.Join(dir, "harness")
	if err := build(ctx, harness, stderr); err != nil {
		return err
	}
	if c.profile != "" {
		return profile(ctx, c, dir, harness, stderr)
	}
	var rows []bench.Row
	for i, v := range c.variants {
		fmt.Fprintf(stderr, "bench: %d of %d: %s\n", i+1, len(c.variants), v)
		out, err := boot(ctx, c, stderr, append([]string{harness, "-variant", v}, c.extra...)...)
		if err != nil {
			return fmt.Errorf("measure %s: %w", v, err)
		}
		got, err := bench.Read(out)
		if err != nil {
			return fmt.Errorf("measure %s: %w", v, err)
		}
		rows = append(rows, got...)
	}
	if err := save(c.out, rows); err != nil {
		return err
	}
	kernel := c.kernel
	if len(rows) > 0 {
		kernel = rows[0].Kernel
	}
	table := fmt.Sprintf("Instructions per operation, median ± distance of the quartiles; Linux %s in a VM:\n\n%s", kernel, bench.Table(rows, bench.Bars()))
	fmt.Fprintf(stdout, "%s\nRows: %s\n", table, c.out)
	if err := embed(c.document, table); err != nil {
		return err
	}
	return bench.Gate(rows, bench.Bars())
}

// build builds the harness without cgo: it must not need what the machine may lack.
func build(ctx context.Context, path string, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, "./bench/harness")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build harness: %w", err)
	}
	return nil
}

// boot boots the VM once for a command and returns what that wrote.
func boot(ctx context.Context, c config, stderr io.Writer, command ...string) (*bytes.Buffer, error) {
	argv := append([]string{"test/vm/run", "-i", "-k", c.kernel, "-t", fmt.Sprint(int(c.timeout.Seconds())), "--"}, command...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// The scheduler's signals would be counted with what they interrupt.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run in the VM: %w", errors.Join(err, ctx.Err()))
	}
	return &out, nil
}

func save(path string, rows []bench.Row) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("save rows: %w", err)
	}
	var buf bytes.Buffer
	if err := bench.Write(&buf, rows); err != nil {
		return err
	}
	if err := os.WriteFile(path, buf.Bytes(), 0o644); err != nil {
		return fmt.Errorf("save rows: %w", err)
	}
	return nil
}

// embed puts the table into the document, if there is one.
func embed(document, table string) error {
	if document == "" {
		return nil
	}
	b, err := os.ReadFile(document)
	if err != nil {
		return fmt.Errorf("embed table: %w", err)
	}
	text, err := bench.Embed(string(b), table)
	if err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	return os.WriteFile(document, []byte(text), 0o644)
}
