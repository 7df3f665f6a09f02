package kubelets

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Spec is the result of one of upstream's tests.
type Spec struct {
	Name         string
	State        string // ginkgo's state: passed, failed, skipped, …
	Began, Ended time.Time
	RunTime      time.Duration
	Failure      string
}

// Run runs a suite, several specs concurrently, and returns the result of each spec not excluded by
// name. logs gets ginkgo's own report. The error says that the suite did not run, or which specs
// failed.
func (c *Cluster) Run(ctx context.Context, s Suite, procs int, logs string) ([]Spec, error) {
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, fmt.Errorf("run %s: %w", s.Name, err)
	}

	log, err := os.Create(filepath.Join(logs, s.Name+".log"))
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", s.Name, err)
	}
	defer log.Close()

	report := filepath.Join(logs, s.Name+".json")

	args := []string{
		"--procs=" + strconv.Itoa(procs), "--focus=" + s.Focus, "--no-color", "--timeout=2h",
		"--json-report=" + s.Name + ".json", "--output-dir=" + logs, "--poll-progress-after=0",
	}
	for _, skip := range s.Skip {
		args = append(args, "--skip="+skip.Match)
	}

	args = append(args, c.program("e2e.test"), "--", "--kubeconfig="+c.kubeconfig(), "--provider=skeleton",
		"--kubectl-path="+c.program("kubectl"), "--allowed-not-ready-nodes=0", "--num-nodes="+strconv.Itoa(c.opts.Nodes),
		"--disable-log-dump", "--dns-domain=cluster.local")

	cmd, err := c.Command(ctx, c.program("ginkgo"), args...)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", s.Name, err)
	}

	cmd.Stdout, cmd.Stderr = log, log
	ran := cmd.Run()

	specs, err := readReport(report)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", s.Name, errors.Join(ran, err))
	}

	return specs, s.judge(specs, ran)
}

func (s Suite) judge(specs []Spec, ran error) error {
	var failed []string

	count := 0

	for _, spec := range specs {
		switch spec.State {
		case "passed":
			count++
		case "skipped":
		default:
			failed = append(failed, spec.Name)
		}
	}

	switch {
	case len(failed) > 0:
		return fmt.Errorf("%s: %d specs failed: %s", s.Name, len(failed), strings.Join(failed, "; "))
	case ran != nil:
		return fmt.Errorf("run %s: %w", s.Name, ran)
	case count < s.Least:
		return fmt.Errorf("%s: %d specs passed, not %d", s.Name, count, s.Least)
	}

	return nil
}

// readReport reads ginkgo's JSON report, without excluded specs and successful set-up.
func readReport(file string) ([]Spec, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}

	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   string
			StartTime, EndTime      time.Time
			RunTime                 time.Duration
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(b, &suites); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}

	var specs []Spec

	for _, suite := range suites {
		for _, r := range suite.SpecReports {
			left := r.State == "skipped" && r.Failure.Message == "" || r.State == "pending"
			if left || r.LeafNodeType != "It" && r.State == "passed" {
				continue
			}

			name := strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " ")
			if r.LeafNodeType != "It" {
				name = strings.TrimSpace(r.LeafNodeType + " " + name)
			}

			specs = append(specs, Spec{
				Name: name, State: r.State, Began: r.StartTime, Ended: r.EndTime, RunTime: r.RunTime, Failure: r.Failure.Message,
			})
		}
	}

	slices.SortFunc(specs, func(a, b Spec) int { return cmp.Compare(a.Name, b.Name) })

	return specs, nil
}

// Print writes one line per spec, and the counts.
func Print(w io.Writer, s Suite, specs []Spec) {
	counts := map[string]int{}
	for _, spec := range specs {
		counts[spec.State]++
		fmt.Fprintf(w, "%-7s %4.0f s  %s\n", spec.State, spec.RunTime.Seconds(), spec.Name)

		if spec.Failure != "" {
			fmt.Fprintf(w, "                %s\n", strings.ReplaceAll(spec.Failure, "\n", "\n                "))
		}
	}

	var parts []string
	for state, n := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", n, state))
	}

	slices.Sort(parts)

	for _, out := range s.Skip {
		fmt.Fprintf(w, "left out: %s: %s\n", out.Match, out.Reason)
	}

	fmt.Fprintf(w, "%s: %s\n", s.Name, strings.Join(parts, ", "))
}
