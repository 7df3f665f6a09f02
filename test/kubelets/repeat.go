package kubelets

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// assertion is what ovs-vswitchd 3.1 now and then aborts by on the userspace
// datapath, whoever sends the packets. Its monitor starts it again, but
// connections are cut, and a spec may see that.
const assertion = "conn->conn_type == CT_CONN_TYPE_DEFAULT"

const attempts = 3

// RunSteadily runs a suite. When specs fail and ovs-vswitchd has aborted by itself
// meanwhile, and only then, it says so and runs those specs again, twice at most.
func (c *Cluster) RunSteadily(ctx context.Context, s Suite, procs int, logs string) ([]Spec, error) {
	before, err := c.aborts()
	if err != nil {
		return nil, err
	}
	specs, failed := c.Run(ctx, s, procs, logs)
	for try := 2; failed != nil && try <= attempts; try++ {
		again := broken(specs)
		after, err := c.aborts()
		if err != nil {
			return specs, err
		}
		if len(again) == 0 || after == before || ctx.Err() != nil {
			break
		}
		c.step("ovs-vswitchd aborted %d times by itself (%s): %d specs of %s that failed run again", after-before, assertion, len(again), s.Name)
		before = after
		some := Suite{Name: fmt.Sprintf("%s-%d", s.Name, try), Focus: only(again), Least: len(again)}
		repeated, err := c.Run(ctx, some, procs, logs)
		specs = replaced(specs, repeated)
		if failed = s.judge(specs, nil); err != nil && failed == nil {
			failed = err
		}
	}
	return specs, failed
}

// aborts counts how often ovs-vswitchd has ended by that assertion, on all nodes.
func (c *Cluster) aborts() (int, error) {
	n := 0
	for _, node := range c.lab.Nodes() {
		b, err := os.ReadFile(filepath.Join(c.path("log"), node.Name+"-ovs-vswitchd.log"))
		if err != nil {
			return 0, err
		}
		n += bytes.Count(b, []byte("assertion "+assertion))
	}
	return n, nil
}

// broken are the names of specs that ran and did not pass.
func broken(specs []Spec) (names []string) {
	for _, s := range specs {
		if s.State != "passed" && s.State != "skipped" {
			names = append(names, s.Name)
		}
	}
	return names
}

// only is a regular expression that matches these names and no others.
func only(names []string) string {
	var quoted []string
	for _, n := range names {
		quoted = append(quoted, regexp.QuoteMeta(n)+"$")
	}
	return strings.Join(quoted, "|")
}

// replaced are the specs with what became of those that ran again.
func replaced(specs, again []Spec) []Spec {
	later := map[string]Spec{}
	for _, s := range again {
		later[s.Name] = s
	}
	var out []Spec
	for _, s := range specs {
		if l, ok := later[s.Name]; ok {
			s = l
		}
		out = append(out, s)
	}
	return out
}
