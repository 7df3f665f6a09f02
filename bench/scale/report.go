package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// bar is a limit for a figure, and whether the figure meets it.
type bar struct {
	name, want, got string
	met             bool
}

// bars returns the bars of the main size, and the bar that compares the largest with the smallest
// size.
func (r *result) bars() []bar {
	var out []bar

	for _, s := range r.Sizes {
		if s.Pods != r.Main {
			continue
		}

		rate := float64(s.Pods) / s.Sync.Seconds
		out = append(out,
			bar{"cold sync, addresses there", "≥ 2,000 ports/s", fmt.Sprintf("%.0f ports/s", rate), rate >= 2000},
			takeoverBar("takeover by a restart", s.Restart), takeoverBar("takeover by the standby", s.Standby),
			bar{fmt.Sprintf("event → transaction, p99 at %.0f changes/s", r.Rate), "< 20 ms", fmt.Sprintf("%.1f ms", s.Churn.P99), s.Churn.P99 > 0 && s.Churn.P99 < 20},
			bar{fmt.Sprintf("our CPU in northd's at %.0f changes/s", r.Rate), "≤ 10 %", fmt.Sprintf("%.1f %%", 100*s.Churn.share()), s.Churn.share() <= 0.1},
			bar{"memory of the controller", "< 300 MB", fmt.Sprintf("%.0f MB, at most %.0f MB", s.Memory.RSS, s.Memory.PeakRSS), s.Memory.PeakRSS < 300},
		)
	}

	if n := len(r.Sizes); n > 1 {
		first, last := r.Sizes[0], r.Sizes[n-1]
		ratio := last.Churn.perChange() / first.Churn.perChange()
		out = append(out, bar{
			fmt.Sprintf("our CPU for a change, %d pods against %d", last.Pods, first.Pods), "flat: ≤ 1.5 ×", fmt.Sprintf("%.2f ×", ratio), ratio <= 1.5,
		})
	}

	return out
}

func takeoverBar(name string, t takeover) bar {
	return bar{
		name, "≤ 5 s, no transaction", fmt.Sprintf("%.1f s (%.1f s of CPU since the start), %.0f transactions", t.Seconds, t.CPU, t.Transactions),
		t.Seconds <= 5 && t.Transactions == 0,
	}
}

// finish prints the document and, with -document, writes it to a file. With -gate, it returns an
// error for each missed bar.
func finish(c config, r *result, stdout io.Writer) error {
	text := document(r)
	fmt.Fprint(stdout, text)

	if c.document != "" {
		if err := os.WriteFile(c.document, []byte(text), 0o644); err != nil {
			return err
		}
	}

	var missed []error

	for _, b := range r.bars() {
		if c.gate && !b.met {
			missed = append(missed, fmt.Errorf("bar missed: %s: %s, want %s", b.name, b.got, b.want))
		}
	}

	return errors.Join(missed...)
}

// document returns the page docs/scale.md for the figures.
func document(r *result) string {
	var b strings.Builder

	put := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }

	putIntroduction(put, r)
	putBars(put, r)
	putSizes(put, r)
	putNodes(put, r)
	putRealNode(put, r)
	putLegend(put)
	putCPU(put, r)

	if n := len(r.Sizes); n > 1 {
		first, last := r.Sizes[0], r.Sizes[n-1]
		perPod := (last.Memory.RSS - first.Memory.RSS) / float64(last.Pods-first.Pods)
		put("\nMemory: 10,000 pods more are %.0f MB more, from %d to %d pods.\n", 1e4*perPod, first.Pods, last.Pods)
	}

	if r.Alloc != nil && r.Alloc.Pods > 0 {
		put("\nWith allocation: %d pods without addresses were annotated, by one request each, and written in %.1f s, %.0f a second.\n",
			r.Alloc.Pods, r.Alloc.Seconds, math.Round(float64(r.Alloc.Pods)/r.Alloc.Seconds))
	}

	return b.String()
}

func putIntroduction(put func(string, ...any), r *result) {
	m := r.Machine

	put("# The controller at scale\n\n")
	put("This page is written by `make bench-scale` from the runs that it leaves in `bench/results/scale`; nothing in it is typed. ")
	put("A real kube-apiserver with etcd, a real ovsdb-server for each database and a real ovn-northd run beside the controller on one machine; ")
	put("no kubelet and no controller manager do: pods and EndpointSlices are written as they would write them.\n\n")
	put("**Supported: up to %d nodes.** Beyond, the controller works on and warns: `ovnkube_controller_supported_nodes`, and an Event `BeyondSupportedSize` on each further node.\n\n", plan.SupportedNodes)
	put("- %s, commit %s\n- %s, %d cores, %s\n- %s, %s, kube-apiserver %s\n", m.Date, m.Commit, m.CPU, m.Cores, m.Kernel, m.OVN, m.OVS, m.Kubernetes)
	put("- %d nodes, %d Services with up to %d endpoints, one in twenty with a node port, %d NetworkPolicies, in %d namespaces\n", r.Nodes, r.Services, perService, r.Policies, namespaces)
	put("- each pod on a random node (seed %d)\n", r.Seed)
}

func putBars(put func(string, ...any), r *result) {
	bars := r.bars()
	if len(bars) > 0 {
		put("\n## Bars, at %d pods\n\n| | bar | measured | |\n|---|---|---|---|\n", r.Main)
	}

	for _, bar := range bars {
		outcome := "**missed**"
		if bar.met {
			outcome = "met"
		}

		put("| %s | %s | %s | %s |\n", bar.name, bar.want, bar.got, outcome)
	}

	for _, s := range r.Sizes {
		if s.Pods == r.Main {
			put("\nThe bar for our CPU is of changes, which never end. In a cold sync, which a database has once, our CPU is %.1f %% of northd's.\n", 100*s.Sync.share())
		}
	}
}

func putSizes(put func(string, ...any), r *result) {
	put("\n## By number of pods\n\n")
	put("| pods | cold sync | ports/s | of it commits | until northd is done | restart | standby | p50 / p99 | our CPU a change | memory (peak) | NB memory | load |\n")
	put("|---|---|---|---|---|---|---|---|---|---|---|---|\n")

	for _, s := range r.Sizes {
		put("| %d | %.1f s | %.0f | %.1f s | %.1f s | %.1f s | %.1f s | %.1f / %.1f ms | %.0f µs | %.0f (%.0f) MB | %.0f MB | %.1f |\n",
			s.Pods, s.Sync.Seconds, float64(s.Pods)/s.Sync.Seconds, s.Commits, s.Northd, s.Restart.Seconds, s.Standby.Seconds,
			s.Churn.P50, s.Churn.P99, s.Churn.perChange(), s.Memory.RSS, s.Memory.PeakRSS, s.NBMemory, s.Load)
	}
}

// table writes the head of a Markdown table.
func table(put func(format string, args ...any), columns ...string) {
	put("| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
}

// putNodes writes the table that compares numbers of nodes and platforms. It writes nothing if only
// one was measured.
func putNodes(put func(format string, args ...any), r *result) {
	rows := r.sideBySide()
	if len(rows) == 0 {
		return
	}

	put("\n## By number of nodes and platform\n\n")
	table(put, "nodes", "OVN", "pods", "cold sync", "until northd is done", "restart", "p50 / p99", "our CPU: cold sync", "a change", "ours / northd's", "memory (peak)", "NB, SB memory", "load")

	for _, row := range rows {
		s := row.size
		put("| %d | %s | %d | %.1f s | %.1f s | %.1f s | %.1f / %.1f ms | %.1f s | %.0f µs | %.1f, %.1f %% | %.0f (%.0f) MB | %.0f, %.0f MB | %.1f |\n",
			row.Nodes, row.ovnVersion(), s.Pods, s.Sync.Seconds, s.Northd, s.Restart.Seconds, s.Churn.P50, s.Churn.P99, s.Sync.CPU["controller"], s.Churn.perChange(),
			100*s.Sync.share(), 100*s.Churn.share(), s.Memory.RSS, s.Memory.PeakRSS, s.NBMemory, s.SBMemory, s.Load)
	}
}

// putRealNode writes the tables of the real node. It writes nothing without runs to compare.
func putRealNode(put func(format string, args ...any), r *result) {
	rows := slices.DeleteFunc(r.sideBySide(), func(row compared) bool { return row.Node == nil })
	if len(rows) == 0 {
		return
	}

	put("\n## One real node\n\n")
	put("One node of the cluster has a real ovn-controller and a real ovs-vswitchd with the userspace datapath, set up as an agent does. ")
	put("The chassis and port bindings of the others are written for them. \"Ready\" is from the start of its daemons until it has all flows.\n\n")
	table(put, "nodes", "OVN", "flows", "ovn-controller", "ovs-vswitchd", "ready", "recompute", "its CPU", "load")

	for _, row := range rows {
		n := row.Node
		put("| %d | %s | %d | %.0f MB | %.0f MB | %.1f s | %.2f s | %.2f s | %.1f |\n",
			row.Nodes, row.ovnVersion(), n.Flows, n.Controller.RSS, n.Vswitchd.RSS, n.Settle, n.Recompute.Seconds, n.Recompute.CPU["ovn-controller"], row.Load)
	}

	put("\nA change, one at a time: from the request to the API server until the node has all its flows. ")
	put("A pod is created on the real node, which has it when ovn-controller reports its flows installed. ")
	put("Of a Service the endpoints change; the end is what `ovn-nbctl --wait=hv sync` reports, whose own work is in its figures. ")
	put("CPU is per change.\n\n")
	table(put, "nodes", "OVN", "change", "number", "p50 / p99", "northd", "ovn-controller", "ovs-vswitchd", "controller", "load")

	for _, row := range rows {
		for _, c := range []struct {
			name string
			probes
		}{{"pod", row.Node.Pods}, {"endpoints", row.Node.Services}} {
			put("| %d | %s | %s | %d | %.0f / %.0f ms | %.0f ms | %.1f ms | %.1f ms | %.1f ms | %.1f |\n",
				row.Nodes, row.ovnVersion(), c.name, c.Count, c.P50, c.P99, c.CPU["northd"], c.CPU["ovn-controller"], c.CPU["ovs-vswitchd"], c.CPU["controller"], row.Load)
		}
	}
}

// putLegend explains the tables above it.
func putLegend(put func(string, ...any)) {
	put("\nCold sync is from the start of the process on an empty database until `/readyz` is 200; restart likewise on a database that is right already; ")
	put("standby is from SIGTERM to the leader until the other leads and is ready. p50 and p99 are from the first event of an owner to its transaction. ")
	put("Load is the machine's load average when the size began: what else ran takes from every time here, not from our CPU seconds. Northd, kept waiting, does several changes at once and takes less: ours / northd's is to be read at a load of two or three.\n\n")
}

func putCPU(put func(string, ...any), r *result) {
	put("## Where the CPU goes\n\nSeconds of CPU during the cold sync (until northd is done), and during %.0f changes/s (until northd is done).\n\n", r.Rate)

	names := []string{"controller", "northd", "ovsdb-server nb", "ovsdb-server sb", "kube-apiserver", "etcd"}
	put("| pods | | %s | ours / northd's |\n|---|---|%s---|\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))

	for _, s := range r.Sizes {
		for _, p := range []struct {
			name string
			phase
		}{{"cold sync", s.Sync}, {fmt.Sprintf("%d changes, %.0f transactions", s.Churn.Changes, s.Churn.Transactions), s.Churn.phase}} {
			put("| %d | %s |", s.Pods, p.name)

			for _, n := range names {
				put(" %.1f |", p.CPU[n])
			}

			put(" %.1f %% |\n", 100*p.share())
		}
	}
}

// describe returns the machine and the versions of its programs.
func describe(ctx context.Context, a *api) machine {
	first := func(name string, args ...string) string {
		out, err := exec.CommandContext(ctx, name, args...).Output()
		if err != nil {
			return "unknown " + name
		}

		line, _, _ := strings.Cut(string(out), "\n")

		return strings.TrimSpace(line)
	}
	here := results.Describe(ctx, "").Machine

	m := machine{
		Date: time.Now().UTC().Format("2006-01-02"), Commit: first("git", "rev-parse", "--short", "HEAD"), CPU: here.CPU, Kernel: here.Kernel, Cores: here.Cores,
		OVN: first("ovn-northd", "--version"), OVS: first("ovsdb-server", "--version"), Kubernetes: "of unknown version",
	}
	if v, err := a.ServerVersion(); err == nil {
		m.Kubernetes = v.GitVersion
	}

	return m
}

// keepLogs copies the logs of all processes, so that they can be read after a failure.
func keepLogs(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}

	logs, err := filepath.Glob(filepath.Join(from, "*.log"))
	if err != nil {
		return err
	}

	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		if err := os.WriteFile(filepath.Join(to, filepath.Base(path)), text, 0o644); err != nil {
			return err
		}
	}

	return nil
}
