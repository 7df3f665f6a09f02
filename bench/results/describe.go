package results

import (
	"cmp"
	"context"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// Describe returns a run on this machine, dated now, without results. Its versions are those of the
// programs in PATH.
func Describe(ctx context.Context, kind string) Run {
	return Run{
		Kind: kind, Date: time.Now().UTC().Format(time.RFC3339), Commit: commit(ctx), Platform: platform.Name(),
		Machine: machine(ctx),
		Versions: strings.Join([]string{
			"Go " + strings.TrimPrefix(runtime.Version(), "go"), "Open vSwitch " + last(first(ctx, "ovs-vswitchd", "--version"), "(Open vSwitch) "),
			"OVN " + last(first(ctx, "ovn-northd", "--version"), "ovn-northd "),
			"QEMU " + last(first(ctx, "qemu-system-x86_64", "--version"), "version "), "nftables " + last(first(ctx, "nft", "--version"), "nftables v"),
		}, ", "),
	}
}

// machine describes this machine. What /proc does not have is unknown, or zero.
func machine(ctx context.Context) Machine {
	m := Machine{CPU: "unknown", Cores: runtime.NumCPU(), Kernel: first(ctx, "uname", "-sr")}

	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return m
	}

	if cpus, err := proc.CPUInfo(); err == nil && len(cpus) > 0 {
		m.CPU = cmp.Or(cpus[0].ModelName, m.CPU)
	}

	if memory, err := proc.Meminfo(); err == nil && memory.MemTotal != nil {
		m.Memory = int(*memory.MemTotal / 1024)
	}

	m.Load = Load()

	return m
}

// Load returns the load average of the last minute, or 0 if it cannot be read.
func Load() float64 {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}

	load, err := proc.LoadAvg()
	if err != nil {
		return 0
	}

	return load.Load1
}

// commit returns the measured commit, or unknown without git.
func commit(ctx context.Context) string {
	return first(ctx, "git", "describe", "--always", "--exclude=*", "--dirty")
}

// first returns the first line of a command's output, or unknown.
func first(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "unknown"
	}

	line, _, _ := strings.Cut(string(out), "\n")

	return strings.TrimSpace(line)
}

// last returns the word after mark, or the whole text.
func last(text, mark string) string {
	_, rest, ok := strings.Cut(text, mark)
	if !ok {
		return text
	}

	word, _, _ := strings.Cut(rest, " ")

	return word
}
