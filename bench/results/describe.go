package results

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// Describe returns an empty run on this machine, dated now. Programs are those of the platform that
// is in use.
func Describe(ctx context.Context, kind string) Run {
	return Run{
		Kind: kind, Date: time.Now().UTC().Format(time.RFC3339), Commit: commit(ctx), Platform: platform.Name(),
		Machine: Machine{
			CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), Memory: memory(), Kernel: first(ctx, "uname", "-sr"), Load: load(),
		},
		Versions: strings.Join([]string{
			"Go " + strings.TrimPrefix(runtime.Version(), "go"), "Open vSwitch " + last(first(ctx, "ovs-vswitchd", "--version"), "(Open vSwitch) "),
			"OVN " + last(first(ctx, "ovn-northd", "--version"), "ovn-northd "),
			"QEMU " + last(first(ctx, "qemu-system-x86_64", "--version"), "version "), "nftables " + last(first(ctx, "nft", "--version"), "nftables v"),
		}, ", "),
	}
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

// field returns the value of name in a file of /proc.
func field(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}

	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}

	return "unknown"
}

func memory() int {
	kib := 0

	for _, c := range strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB") {
		if c < '0' || c > '9' {
			return 0
		}

		kib = 10*kib + int(c-'0')
	}

	return kib / 1024
}

func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}

	word, _, _ := strings.Cut(string(text), " ")

	average, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return 0
	}

	return average
}
