package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/test/document"
)

// comparison compares the profiles of variants in a test. The first variant is the base of a bar,
// and the last one the variant that must meet it.
type comparison struct {
	test     string
	variants []string
}

// overlayOnly is a variant of the harness for profiles only.
const overlayOnly = "overlay-only"

var comparisons = []comparison{
	{bench.OverlayUDPRR, []string{bench.NoOVS, overlayOnly, bench.EBPF}},
	{bench.NSUDPRR, []string{bench.Masquerade, bench.Bridged, bench.EBPF}},
	{bench.HostUDPRR, []string{bench.NoOVS, bench.EBPF}},
	{bench.NSTCPCRR, []string{bench.OVNKOnOVN, bench.EBPFOnOVN}},
	{bench.NodePortLocal, []string{bench.OVNKOnOVN, bench.EBPFOnOVN}},
	{bench.NodePortRemote, []string{bench.OVNKOnOVN, bench.EBPFOnOVN}},
}

// profile boots the VM with the counting plugin for each compared variant. It writes the
// comparisons to the document of -profile, and all stacks to profile.json in the directory of
// results.
func profile(ctx context.Context, c config, dir, harness string, stderr io.Writer) error {
	if err := buildCounter(ctx, dir); err != nil {
		return err
	}

	tests := map[string][]string{}

	var variants []string
	for _, comparison := range comparisons {
		for _, v := range comparison.variants {
			if len(tests[v]) == 0 {
				variants = append(variants, v)
			}

			tests[v] = append(tests[v], comparison.test)
		}
	}

	var all []bench.Profile

	for _, v := range variants {
		fmt.Fprintf(stderr, "bench: profile %s\n", v)

		out, err := boot(ctx, c, stderr, harness, "-profile", "-variant", v, "-tests", strings.Join(tests[v], ","))
		if err != nil {
			return fmt.Errorf("profile %s: %w", v, err)
		}

		var got []bench.Profile
		if err := json.NewDecoder(out).Decode(&got); err != nil {
			return fmt.Errorf("profile %s: decode: %w", v, err)
		}

		if err := addStacks(dir, got); err != nil {
			return fmt.Errorf("profile %s: %w", v, err)
		}

		all = append(all, got...)
	}

	if err := saveProfiles(filepath.Join(c.out, "profile.json"), all); err != nil {
		return err
	}

	text, err := compare(all)
	if err != nil {
		return err
	}

	return embed(c.profile, text)
}

// buildCounter builds the counting plugin, and a wrapper with which test/vm/run starts qemu, found
// through PATH. Plugin and guest write to dir.
func buildCounter(ctx context.Context, dir string) error {
	if err := missing([]tool{{"gcc", "gcc"}}, exec.LookPath); err != nil {
		return err
	}

	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return fmt.Errorf("find qemu: %w", err)
	}

	plugin := filepath.Join(dir, "stacks.so")
	if out, err := exec.CommandContext(ctx, "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden",
		"-shared", "-o", plugin, "bench/stacks/stacks.c").CombinedOutput(); err != nil {
		return fmt.Errorf("build bench/stacks: %w: %s", err, out)
	}

	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return fmt.Errorf("make qemu with plugin: %w", err)
	}

	script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\" -plugin '%s,out=%s'\n", qemu, plugin, stacksFile(dir))
	if err := os.WriteFile(filepath.Join(bin, "qemu-system-x86_64"), []byte(script), 0o755); err != nil {
		return fmt.Errorf("make qemu with plugin: %w", err)
	}

	return errors.Join(os.Setenv("PATH", bin+":"+os.Getenv("PATH")), os.Setenv("VM_OUT", dir))
}

func stacksFile(dir string) string { return filepath.Join(dir, "stacks") }

// addStacks adds the counted stacks to the profiles of the last boot, and checks that their sums
// agree with the harness's measurement.
func addStacks(dir string, profiles []bench.Profile) error {
	text, err := os.ReadFile(filepath.Join(dir, "kallsyms"))
	if err != nil {
		return fmt.Errorf("read symbols: %w", err)
	}

	symbols, err := bench.ParseSymbols(string(text))
	if err != nil {
		return err
	}

	f, err := os.Open(stacksFile(dir))
	if err != nil {
		return fmt.Errorf("read stacks: %w", err)
	}
	defer f.Close()

	stacks, err := bench.ReadStacks(f, symbols)
	if err != nil {
		return err
	}

	if len(stacks) != len(profiles) {
		return fmt.Errorf("read stacks: those of %d tests, want %d", len(stacks), len(profiles))
	}

	for i := range profiles {
		profiles[i].Stacks = stacks[i]
		if err := profiles[i].Check(); err != nil {
			return err
		}
	}

	return nil
}

func saveProfiles(path string, all []bench.Profile) error {
	data, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("save profiles: %w", err)
	}

	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
		return fmt.Errorf("save profiles: %w", err)
	}

	return nil
}

// compare returns the comparisons as Markdown.
func compare(all []bench.Profile) (string, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "Linux %s in a VM, instructions per operation.\n", all[0].Row.Kernel)

	for _, comparison := range comparisons {
		var columns []bench.Profile

		for _, v := range comparison.variants {
			i := slices.IndexFunc(all, func(p bench.Profile) bool {
				return p.Row.Variant == v && p.Row.Test == comparison.test && p.Row.Family == bench.IPv4
			})
			if i < 0 {
				return "", fmt.Errorf("compare %s: no profile of %s", comparison.test, v)
			}

			columns = append(columns, all[i])
		}

		fmt.Fprintf(&text, "\n## %s\n\n%s", comparison.test, bench.CompareProfiles(columns...))
	}

	return text.String(), nil
}

// embed puts the comparisons into the document.
func embed(path, table string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("embed profile: %w", err)
	}

	text, err := document.Embed(string(b), "bench", table)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}

	return os.WriteFile(path, []byte(text), 0o644)
}
