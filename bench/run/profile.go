package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// comparison is of what ours costs more than another variant in a test.
type comparison struct{ base, test string }

var comparisons = []comparison{
	{bench.NoOVS, bench.OverlayUDPRR},
	{bench.Masquerade, bench.NSUDPRR},
	{bench.NoOVS, bench.HostUDPRR},
}

// profile boots the VM for each variant that is compared, lets the harness sample
// there, and puts the comparisons into the document.
func profile(ctx context.Context, c config, harness string, stderr io.Writer) error {
	tests := map[string][]string{}
	for _, x := range comparisons {
		tests[x.base] = append(tests[x.base], x.test)
		tests[bench.EBPF] = append(tests[bench.EBPF], x.test)
	}
	var all []bench.Profile
	for _, v := range bench.Variants() {
		if len(tests[v]) == 0 {
			continue
		}
		fmt.Fprintf(stderr, "bench: profile %s\n", v)
		out, err := boot(ctx, c, stderr, harness, "-profile", "-variant", v, "-tests", strings.Join(tests[v], ","))
		if err != nil {
			return fmt.Errorf("profile %s: %w", v, err)
		}
		var got []bench.Profile
		if err := json.NewDecoder(out).Decode(&got); err != nil {
			return fmt.Errorf("profile %s: decode: %w", v, err)
		}
		all = append(all, got...)
	}
	var text strings.Builder
	for i, x := range comparisons {
		base, ours := find(all, x.base, x.test), find(all, bench.EBPF, x.test)
		if i == 0 {
			fmt.Fprintf(&text, "Linux %s in a VM, instructions per operation.\n", base.Row.Kernel)
		}
		fmt.Fprintf(&text, "\n## %s: %s and %s\n\n%s", x.test, x.base, bench.EBPF, bench.CompareProfiles(base, ours))
	}
	return embed(c.profile, text.String())
}

func find(all []bench.Profile, variant, test string) bench.Profile {
	i := slices.IndexFunc(all, func(p bench.Profile) bool {
		return p.Row.Variant == variant && p.Row.Test == test && p.Row.Family == bench.IPv4
	})
	if i < 0 {
		return bench.Profile{}
	}
	return all[i]
}
