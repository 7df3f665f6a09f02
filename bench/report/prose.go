package report

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// figure matches a figure in prose: <!-- fig WHAT -->12,345<!-- /fig -->.
var figure = regexp.MustCompile(`<!-- fig ([^>]*) -->[^<]*<!-- /fig -->`)

// Prose inserts the figures into a document's sentences. A mark requests a count, "ebpf
// host_udp_rr", or a ratio, "ebpf/no-ovs host_udp_rr", of the packet path's rows; a final "ipv6"
// selects that family.
func Prose(document string, runs Runs) (string, error) {
	var errs []error

	out := figure.ReplaceAllStringFunc(document, func(mark string) string {
		what := figure.FindStringSubmatch(mark)[1]

		text, err := lookUp(what, runs)
		if err != nil {
			errs = append(errs, fmt.Errorf("make figure %q: %w", what, err))
			return mark
		}

		return fmt.Sprintf("<!-- fig %s -->%s<!-- /fig -->", what, text)
	})
	if strings.Count(document, "<!-- fig ") != len(figure.FindAllString(document, -1)) {
		errs = append(errs, errors.New("make figures: a mark <!-- fig … --> is not closed by <!-- /fig -->"))
	}

	return out, errors.Join(errs...)
}

// lookUp returns the figure for the text of a mark.
func lookUp(what string, runs Runs) (string, error) {
	words := strings.Fields(what)

	family := bench.IPv4
	if len(words) == 3 && words[2] == bench.IPv6 {
		family, words = bench.IPv6, words[:2]
	}

	if len(words) != 2 {
		return "", errors.New("want VARIANT[/VARIANT] TEST [ipv6]")
	}

	r := runs[results.Packets]
	if r == nil {
		return "", errors.New("no run of the packet path")
	}

	rows := bench.OnKernel(r.Rows, Kernel)
	variant, base, isRatio := strings.Cut(words[0], "/")

	row, ok := bench.Find(rows, variant, words[1], family)
	if !ok {
		return "", fmt.Errorf("no row of %s", variant)
	}

	if !isRatio {
		return thousands(row.Instructions), nil
	}

	below, ok := bench.Find(rows, base, words[1], family)
	if !ok {
		return "", fmt.Errorf("no row of %s", base)
	}

	return fmt.Sprintf("%.3f", row.Instructions/below.Instructions), nil
}
