package campaign

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Report is the result of one campaign, as stored in results.
type Report struct {
	Campaign string
	Commit   string
	Seed     uint64
	Seconds  int // duration of the run
	Steps    []*Step
	Figures  []Figure `json:",omitempty"`
	Broken   []string
	Starts   []podStart `json:"-"` // in a file of its own

	began time.Time
}

// Step sums up all steps of one kind.
type Step struct {
	Kind   string
	Times  int
	HealMS []int64          // recovery time of all paths, per step; 0: not in time, or not measured
	Lost   map[string]Count // by path
}

// Figure is one measured value of a campaign.
type Figure struct {
	Name  string
	Value string
}

func newReport(campaign string, o Options) *Report {
	return &Report{Campaign: campaign, Commit: commit("."), Seed: o.Seed, began: time.Now()}
}

// commit returns the commit of the checkout that has the directory, or "" outside of a checkout. If a
// tracked file has been changed, "-dirty" follows. The files that campaigns replace do not count:
// .ci/full removes old results, and writes the document after each campaign.
func commit(dir string) string {
	head, err := exec.Command("git", "-C", dir, "describe", "--always").Output()
	if err != nil {
		return ""
	}

	changed, err := exec.Command("git", "-C", dir, "status", "--porcelain", "--untracked-files=no", "--",
		":(top)", ":(top,exclude)test/campaign/results", ":(top,exclude)docs/reliability.md").Output()
	if suffix := "-dirty"; err != nil || len(changed) > 0 {
		return strings.TrimSpace(string(head)) + suffix
	}

	return strings.TrimSpace(string(head))
}

// late returns the number of steps of a kind after which a path was not answered in time.
func (r *Report) late(kind string) (n int) {
	for _, b := range r.Broken {
		if strings.Contains(b, ", "+kind+" (") && strings.Contains(b, "): not answered ") {
			n++
		}
	}

	return n
}

func (r *Report) addStep(kind string, heal time.Duration, lost map[string]Count) {
	i := slices.IndexFunc(r.Steps, func(s *Step) bool { return s.Kind == kind })
	if i < 0 {
		r.Steps, i = append(r.Steps, &Step{Kind: kind, Lost: map[string]Count{}}), len(r.Steps)
	}

	s := r.Steps[i]
	s.Times++

	s.HealMS = append(s.HealMS, heal.Milliseconds())
	for path, c := range lost {
		total := s.Lost[path]
		total.add(c)
		s.Lost[path] = total
	}

	r.Seconds = int(time.Since(r.began).Seconds())
}

// Keep writes the report to the directory, and the pod starts to a table beside it.
func (r *Report) Keep(dir string) error {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}

	name := filepath.Join(dir, fmt.Sprintf("%s-%d", r.Campaign, r.Seed))
	if err := os.WriteFile(name+".json", append(b, '\n'), 0o644); err != nil || len(r.Starts) == 0 {
		return err
	}

	return os.WriteFile(name+"-starts.csv", r.startsTable(), 0o644)
}

// startsTable formats the pod starts as CSV: phase, milliseconds since the first start, milliseconds
// until the pod's interface worked, and the error if it did not.
func (r *Report) startsTable() []byte {
	var b bytes.Buffer

	rows := [][]string{{"phase", "at_ms", "took_ms", "error"}}

	for _, s := range r.Starts {
		row := []string{s.phase, fmt.Sprint(s.at.Sub(r.Starts[0].at).Milliseconds()), fmt.Sprint(s.took.Milliseconds()), ""}
		if s.err != nil {
			row[3] = s.err.Error()
		}

		rows = append(rows, row)
	}

	if err := csv.NewWriter(&b).WriteAll(rows); err != nil {
		panic(err) // a buffer takes everything
	}

	return b.Bytes()
}

// Load reads the reports of a campaign, sorted by seed.
func Load(results fs.FS, campaign string) ([]*Report, error) {
	names, err := fs.Glob(results, campaign+"-*.json")
	if err != nil {
		return nil, err
	}

	var out []*Report

	for _, name := range names {
		b, err := fs.ReadFile(results, name)
		if err != nil {
			return nil, err
		}

		r := &Report{}
		if err := json.Unmarshal(b, r); err != nil {
			return nil, fmt.Errorf("read %s: %w", path.Base(name), err)
		}

		out = append(out, r)
	}

	slices.SortFunc(out, func(a, b *Report) int { return cmp.Compare(a.Seed, b.Seed) })

	return out, nil
}

// quantile returns the value at this fraction of the sorted values.
func quantile(values []int64, part float64) int64 {
	if len(values) == 0 {
		return 0
	}

	slices.Sort(values)

	return values[min(len(values)-1, int(part*float64(len(values))))]
}

// Table formats the reports in Markdown, with a row for each kind of step.
func Table(reports []*Report) string {
	if len(reports) == 0 {
		return "No run is kept.\n"
	}

	var b strings.Builder

	all, paths, steps := &Report{}, []string{}, 0
	for _, r := range reports {
		fmt.Fprintf(&b, "- seed %d, commit %s: %d steps in %d s, %d rules broken\n", r.Seed, r.Commit, r.steps(), r.Seconds, len(r.Broken))
		all.Seconds, steps = all.Seconds+r.Seconds, steps+r.steps()

		all.Broken = append(all.Broken, r.Broken...)
		for _, s := range r.Steps {
			for path := range s.Lost {
				if !slices.Contains(paths, path) {
					paths = append(paths, path)
				}
			}

			all.merge(s)
		}

		for _, f := range r.Figures {
			fmt.Fprintf(&b, "  - %s: %s\n", f.Name, f.Value)
		}
	}

	fmt.Fprintf(&b, "- in all: %d steps in %d min\n", steps, all.Seconds/60)
	slices.Sort(paths)
	slices.SortFunc(all.Steps, func(a, b *Step) int { return strings.Compare(a.Kind, b.Kind) })
	fmt.Fprintf(&b, "\n| step | times | whole again after, p50 | p99 | lost: %s |\n|---|--:|--:|--:|%s\n", strings.Join(paths, " | "), strings.Repeat("--:|", len(paths)))

	for _, s := range all.Steps {
		late, healed := all.late(s.Kind), slices.Clone(s.HealMS)
		if late > 0 {
			healed = slices.DeleteFunc(healed, func(ms int64) bool { return ms == 0 })
		}

		fmt.Fprintf(&b, "| %s | %d | %.1f s | %.1f s", s.Kind, s.Times, float64(quantile(healed, 0.5))/1000, float64(quantile(healed, 0.99))/1000)

		if late > 0 {
			fmt.Fprintf(&b, ", %d not in time", late)
		}

		b.WriteString(" |")

		for _, path := range paths {
			c := s.Lost[path]
			fmt.Fprintf(&b, " %d of %d", c.Lost, c.Sent)

			if c.Redialled > 0 {
				fmt.Fprintf(&b, ", %d redialled", c.Redialled)
			}

			b.WriteString(" |")
		}

		b.WriteString("\n")
	}

	return b.String()
}

// steps returns the number of steps, without the intervals between them.
func (r *Report) steps() (n int) {
	for _, s := range r.Steps {
		if s.Kind != "none" {
			n += s.Times
		}
	}

	return n
}

func (r *Report) merge(s *Step) {
	i := slices.IndexFunc(r.Steps, func(have *Step) bool { return have.Kind == s.Kind })
	if i < 0 {
		r.Steps, i = append(r.Steps, &Step{Kind: s.Kind, Lost: map[string]Count{}}), len(r.Steps)
	}

	to := r.Steps[i]
	to.Times += s.Times

	to.HealMS = append(to.HealMS, s.HealMS...)
	for path, c := range s.Lost {
		total := to.Lost[path]
		total.add(c)
		to.Lost[path] = total
	}
}
