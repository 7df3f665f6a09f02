package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)

	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		os.Exit(1)
	}
}

// run measures one variant, and writes its rows or profiles to stdout.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("harness", flag.ContinueOnError)
	flags.SetOutput(stderr)
	name := flags.String("variant", "", "what to measure: "+strings.Join(bench.AllVariants(), ", "))
	only := flags.String("tests", "", "comma-separated names, default all that the variant has; host_udp_rr/ipv6 is one by one family")
	services := flags.Int("services", 1000, "how many Services the node knows")
	flowList := flags.String("flows", fmt.Sprint(flowCount), "how many connections the operations take turns on; many: UDP only; several numbers: all tests with each")
	seed := flags.Int("seed", 1, "which ports the clients send from")
	batches := flags.Int("batches", 41, "batches per test, after the warm-up")
	plant := flags.Bool("plant", false, "in the end host_udp_rr once more, with a program that is slower on purpose")

	profile := flags.Bool("profile", false, "mark for bench/stacks what is counted, leave /proc/kallsyms in $VM_OUT, and write profiles instead of rows")
	if err := flags.Parse(args); err != nil {
		return err
	}

	if flags.NArg() > 0 {
		return fmt.Errorf("parse arguments: unexpected %q", flags.Arg(0))
	}

	if os.Getenv("VM_KERNEL") == "" {
		return errors.New("not inside the test VM: the harness would rewire this machine's network (see bench/run)")
	}

	log := slog.New(slog.NewTextHandler(stderr, nil))

	// This thread moves between network namespaces, and no other thread may run while it counts.
	runtime.LockOSThread()
	debug.SetGCPercent(-1)

	flows, err := numbers(*flowList)
	if err != nil {
		return fmt.Errorf("parse -flows: %w", err)
	}

	// Each flow has two sockets, and the harness needs a few more files. The usual limit is 1024.
	if files := uint64(2*min(slices.Max(flows), maxSockets) + 100); files > 1000 {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: files}); err != nil {
			return fmt.Errorf("allow so many sockets: %w", err)
		}
	}

	v, err := newVariant(*name, *services, log)
	if err != nil {
		return err
	}

	m := measurement{variant: v, log: log, batches: *batches, flows: flows, seed: *seed}
	if *only != "" {
		m.only = strings.Split(*only, ",")
	}

	m.profiling, m.plant = *profile, *plant

	rows, err := m.run(ctx)
	if err != nil {
		return fmt.Errorf("measure %s: %w", *name, err)
	}

	if m.profiling {
		if err := leaveSymbols(os.Getenv("VM_OUT")); err != nil {
			return err
		}

		return json.NewEncoder(stdout).Encode(m.profiles)
	}

	return bench.Write(stdout, rows)
}

// numbers parses natural numbers separated by commas.
func numbers(list string) ([]int, error) {
	var out []int

	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no number of flows", word)
		}

		out = append(out, n)
	}

	return out, nil
}

// variant is one wiring of a node. A variant with IPv6 for pods also has the method podsIPv6
// (prepareIPv6).
type variant interface {
	// setup builds the variant between the three namespaces, and verifies it.
	setup(ctx context.Context) error
	// watch is called before a test. It reads the variant's counters. The returned function is called
	// after the test with the number of operations. It returns an error if the packets took another
	// path than the variant's.
	watch(ctx context.Context, test test) (func(ops int) error, error)
	traits() traits
}

// traits describe the rows and the tests of a variant.
type traits struct {
	name, layout string   // as in bench.Row
	tests        []string // of bench.Tests, for IPv4
	ipv6         []string // of bench.Tests, for IPv6
}

// newVariant returns the variant of a name, not yet set up.
func newVariant(name string, services int, log *slog.Logger) (variant, error) {
	switch name {
	case bench.NoOVS:
		return &noOVS{}, nil
	case bench.Masquerade:
		return &masquerade{}, nil
	case bench.Flowtable:
		return &masquerade{flowtable: true}, nil
	case bench.Helper:
		return &helper{ovs: newOVS(log)}, nil
	case bench.EBPF:
		return &ebpf{ovs: newOVS(log), log: log, services: services}, nil
	case bench.Shortcuts:
		return &ebpf{ovs: newOVS(log), log: log, services: services, shortcuts: true}, nil
	case bench.NeverShort:
		return &ebpf{ovs: newOVS(log), log: log, services: services, shortcuts: true, lease: -1}, nil
	case bench.Bridged:
		return &bridged{ebpf{ovs: newOVS(log), log: log, services: services}}, nil
	case bench.ShortcutsBridged:
		return &bridged{ebpf{ovs: newOVS(log), log: log, services: services, shortcuts: true}}, nil
	case bench.OpenFlow:
		return &flowed{ovs: newOVS(log), services: services}, nil
	case bench.OVNK:
		return &ovnk{ovs: newOVS(log), services: services}, nil
	case bench.OVNKOnOVN:
		return &ovnk{ovs: newOVS(log).onOVN(), services: services}, nil
	case bench.EBPFOnOVN:
		return &ebpf{ovs: newOVS(log).onOVN(), log: log, services: services}, nil
	case bench.ShortcutsOnOVN:
		return &ebpf{ovs: newOVS(log).onOVN(), log: log, services: services, shortcuts: true}, nil
	case overlayOnly:
		return &overlay{ovs: newOVS(log)}, nil
	}

	return nil, fmt.Errorf("no variant %q: one of %s", name, strings.Join(bench.AllVariants(), ", "))
}

// measurement measures the tests of one variant.
type measurement struct {
	variant variant
	log     *slog.Logger
	batches int      // counted batches of a test
	flows   []int    // numbers of flows: all tests are run with each
	seed    int      // of the clients' ports
	only    []string // tests as NAME or NAME/FAMILY; empty: all
	plant   bool     // at the end, measure slower programs (bench.Planted)

	podsHaveIPv6 bool
	// profiling marks the counted code for bench/stacks, and adds a profile without stacks per row.
	profiling bool
	profiles  []bench.Profile
}

// run sets up the variant and measures its tests.
func (m *measurement) run(ctx context.Context) ([]bench.Row, error) {
	kernel, err := release()
	if err != nil {
		return nil, err
	}

	if err := buildNamespaces(ctx); err != nil {
		return nil, err
	}

	if err := m.variant.setup(ctx); err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}

	t := m.variant.traits()
	if err := prepareFlows(ctx, t, slices.Max(m.flows)); err != nil {
		return nil, err
	}

	var rows []bench.Row

	used := 0 // client ports of the tests so far

	for _, flows := range m.flows {
		for _, tt := range t.plan() {
			if len(m.only) > 0 && !slices.Contains(m.only, tt.name) && !slices.Contains(m.only, tt.name+"/"+tt.family) {
				continue
			}

			tt.flows, tt.used = flows, used

			row, err := m.row(ctx, tt, bench.Row{Variant: t.name, Layout: t.layout, Kernel: kernel})
			if err != nil {
				return nil, err
			}

			rows = append(rows, row)

			if m.profiling {
				markWrite()

				m.profiles = append(m.profiles, bench.Profile{Row: row, Operations: m.batchesOf(tt) * tt.batchSize()})
			}
		}

		used += min(flows, portsEach)
	}

	if m.plant {
		row, err := m.planted(ctx, kernel)
		if err != nil {
			return nil, err
		}

		rows = append(rows, row)
	}

	return rows, nil
}

// row runs one test and fills in its row.
func (m *measurement) row(ctx context.Context, tt test, row bench.Row) (bench.Row, error) {
	tt.seed = m.seed

	err := m.prepareIPv6(ctx, tt)
	if err != nil {
		return row, fmt.Errorf("give pods IPv6: %w", err)
	}

	row.Test, row.Family = tt.name, tt.family

	row.Instructions, row.Spread, err = m.measureTest(ctx, tt)
	if err != nil {
		return row, fmt.Errorf("test %s %s: %w", tt.name, tt.family, err)
	}

	m.log.Info("measured", "variant", row.Variant, "test", tt.name, "family", tt.family,
		"instructions", int(row.Instructions), "spread", fmt.Sprintf("%.4f", row.Spread))

	return row, nil
}

// prepareIPv6 adds IPv6 to the pods before the first test that needs it, so that earlier tests are
// not affected.
func (m *measurement) prepareIPv6(ctx context.Context, tt test) error {
	if m.podsHaveIPv6 || tt.family != bench.IPv6 || strings.HasPrefix(tt.name, "host_") {
		return nil
	}

	m.podsHaveIPv6 = true

	v, ok := m.variant.(interface{ podsIPv6(context.Context) error })
	if !ok {
		return errors.New("the variant has none")
	}

	return errors.Join(podsIPv6(ctx), v.podsIPv6(ctx))
}

// planted measures a program that was slowed down on purpose.
func (m *measurement) planted(ctx context.Context, kernel string) (bench.Row, error) {
	v, ok := m.variant.(*ebpf)
	if !ok {
		return bench.Row{}, errors.New("plant slower programs: only in layout direct with eBPF")
	}

	if err := v.plant(); err != nil {
		return bench.Row{}, err
	}

	return m.row(ctx, test{name: bench.HostUDPRR, family: bench.IPv4}, bench.Row{Variant: bench.Planted, Layout: "direct", Kernel: kernel})
}

// gatewayTests returns the tests of every gateway: all but those with the node's host as the
// client.
func gatewayTests() []string {
	return slices.DeleteFunc(bench.Tests(), func(name string) bool { return test{name: name}.fromHost() })
}

// hostTests returns the tests of the host alone, without pods.
func hostTests() []string {
	return slices.DeleteFunc(gatewayTests(), func(name string) bool { return !strings.HasPrefix(name, "host_") })
}

// hostTests6 returns the tests of hostTests that are also measured over IPv6.
func hostTests6() []string {
	return []string{bench.HostUDPRR, bench.HostTCPRR, bench.HostTCPCRR, bench.HostStreamIn, bench.HostStreamOut}
}

// gatewayTests6 returns the tests of gatewayTests that are also measured over IPv6.
func gatewayTests6() []string {
	return append(hostTests6(), bench.OverlayUDPRR, bench.NSUDPRR, bench.NSTCPCRR)
}

// plan returns the tests in bench's order.
func (t traits) plan() []test {
	var tests []test
	for _, name := range bench.Tests() {
		if slices.Contains(t.tests, name) {
			tests = append(tests, test{name: name, family: bench.IPv4})
		}

		if slices.Contains(t.ipv6, name) {
			tests = append(tests, test{name: name, family: bench.IPv6})
		}
	}

	return tests
}

// release returns the release of the kernel, as uname(2) has it.
func release() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("read kernel release: %w", err)
	}

	return unix.ByteSliceToString(u.Release[:]), nil
}
