package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/scratch"
)

// options are the choices of a run.
type options struct {
	run, skip *regexp.Regexp // of tests; skip may be nil
	files     *regexp.Regexp
	sample    int // number of mutants that are tried, 0: all
	seed      uint64
}

func main() {
	survivors, err := mutate(os.Args[1:], os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	case survivors > 0:
		os.Exit(1)
	}
}

// mutate returns the number of survivors that are not accepted.
func mutate(args []string, out io.Writer) (survivors int, err error) {
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	run := flags.String("run", "", "only the tests that match this regular expression")
	skip := flags.String("skip", "", "not the tests that match this regular expression")
	files := flags.String("files", "", "only the mutants in files that match this regular expression")
	sample := flags.Int("sample", 0, "try only so many mutants of each package, chosen at random (0: all)")
	seed := flags.Uint64("seed", rand.Uint64(), "of the choice (default: random)")

	accepted := flags.String("accepted", "docs/mutation.md", "file with the table of accepted survivors")
	if err := flags.Parse(args); err != nil {
		return 0, err
	}

	o := options{sample: *sample, seed: *seed}
	for to, text := range map[**regexp.Regexp]string{&o.run: *run, &o.files: *files} {
		if *to, err = regexp.Compile(text); err != nil {
			return 0, err
		}
	}

	if *skip != "" {
		if o.skip, err = regexp.Compile(*skip); err != nil {
			return 0, err
		}
	}

	table, err := os.ReadFile(*accepted)
	if err != nil {
		return 0, err
	}

	for _, pkg := range flags.Args() {
		n, err := try(pkg, o, string(table), out)
		if survivors += n; err != nil {
			return survivors, err
		}
	}

	return survivors, nil
}

// try tries the mutants of one package.
func try(pkg string, o options, table string, out io.Writer) (survivors int, err error) {
	made, err := scratch.Make("mutate")
	if err != nil {
		return 0, err
	}
	defer func() { _ = made.Remove() }() // test/sweep removes it otherwise

	work := made.Path

	dir, err := filepath.Abs(pkg)
	if err != nil {
		return 0, err
	}

	b, err := build(dir, work)
	if err != nil {
		return 0, err
	}

	s, err := survey(b, o)
	if err != nil {
		return 0, err
	}

	chosen := choose(b.mutants, o)
	fmt.Fprintf(out, "mutate: %s: %d of %d mutants, %d tests", pkg, len(chosen), len(b.mutants), len(s.cost))

	if o.sample > 0 {
		fmt.Fprintf(out, ", SEED=%d", o.seed)
	}

	fmt.Fprintln(out)

	counts := map[string]int{}

	for _, id := range chosen {
		verdict := s.verdict(b, id)
		if m := b.mutants[id-1]; verdict == "survives" || verdict == "not covered" {
			line, err := sourceLine(m)
			if err != nil {
				return survivors, err
			}

			name := filepath.ToSlash(filepath.Join(pkg, filepath.Base(m.at.Filename)))

			row := fmt.Sprintf("| `%s` | %s | `%s` |", name, m.kind, strings.ReplaceAll(line, "|", `\|`))
			switch {
			case verdict == "survives" && strings.Contains(table, row):
				verdict = "accepted"
			case verdict == "survives":
				survivors++
			}

			fmt.Fprintf(out, "mutate: %s: %s:%d:%d %s: %s\n", verdict, name, m.at.Line, m.at.Column, m.kind, line)
		}

		counts[verdict]++
	}

	fmt.Fprintf(out, "mutate: %s: %d killed, %d timed out, %d survive, %d accepted, %d not covered\n",
		pkg, counts["killed"], counts["timed out"], counts["survives"], counts["accepted"], counts["not covered"])

	return survivors, nil
}

// choose returns the IDs of the mutants to try, in the order of their positions.
func choose(mutants []mutant, o options) []int {
	var ids []int

	for i, m := range mutants {
		if o.files.MatchString(filepath.Base(m.at.Filename)) {
			ids = append(ids, i+1)
		}
	}

	if o.sample > 0 {
		r := rand.New(rand.NewPCG(o.seed, 0))
		r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		ids = ids[:min(o.sample, len(ids))]
	}

	slices.SortFunc(ids, func(a, b int) int {
		x, y := mutants[a-1].at, mutants[b-1].at
		return cmp.Or(cmp.Compare(x.Filename, y.Filename), cmp.Compare(x.Offset, y.Offset), cmp.Compare(a, b))
	})

	return ids
}

func sourceLine(m mutant) (string, error) {
	text, err := os.ReadFile(m.at.Filename)
	if err != nil {
		return "", err
	}

	return strings.TrimSpace(strings.Split(string(text), "\n")[m.at.Line-1]), nil
}

// tests is what is known of a package's tests.
type tests struct {
	reach map[int][]string         // the tests that reach a mutant
	cost  map[string]time.Duration // of each test
	kills map[string]int           // mutants that each test has noticed
}

// survey runs each test once, without a mutant.
func survey(b *binary, o options) (tests, error) {
	s := tests{map[int][]string{}, map[string]time.Duration{}, map[string]int{}}

	names, err := b.tests(o.run, o.skip)
	if err != nil {
		return s, err
	}

	for _, name := range names {
		start := time.Now()

		ids, err := b.reached(name)
		if err != nil {
			return s, err
		}

		s.cost[name] = time.Since(start)
		for _, id := range ids {
			s.reach[id] = append(s.reach[id], name)
		}
	}

	return s, nil
}

// verdict runs the tests that reach a mutant until one notices it: first those that are quick and
// have noticed most.
func (s tests) verdict(b *binary, id int) string {
	names := s.reach[id]
	if len(names) == 0 {
		return "not covered"
	}

	price := func(name string) time.Duration { return s.cost[name] / time.Duration(1+s.kills[name]) }

	slices.SortFunc(names, func(x, y string) int { return cmp.Compare(price(x), price(y)) })

	for _, name := range names {
		switch how, _ := b.run(name, fmt.Sprintf("MUTANT=%d", id), 20*time.Second+10*s.cost[name]); how {
		case failed:
			s.kills[name]++
			return "killed"
		case timedOut:
			return "timed out"
		case passed:
		}
	}

	return "survives"
}
