package kubelets

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	// assertion is the assertion on which ovs-vswitchd before 3.3 aborts on the userspace datapath. In
	// suites with Suite.AvoidNullNAT, agents keep OVN from triggering it, except for connections older
	// than the agent. The monitor restarts ovs-vswitchd, but connections break, which may fail a spec.
	assertion = "conn->conn_type == CT_CONN_TYPE_DEFAULT"
	attempts  = 3
)

// RunSteadily runs a suite. A spec that fails during a spontaneous abort of ovs-vswitchd, and only
// such a spec, is repeated alone, at most twice, with a message.
func (c *Cluster) RunSteadily(ctx context.Context, s Suite, procs int, logs string) ([]Spec, error) {
	specs, failed := c.Run(ctx, s, procs, logs)
	for try := 2; failed != nil && try <= attempts && ctx.Err() == nil; try++ {
		aborts, err := c.aborts()
		if err != nil {
			return specs, err
		}
		again := disturbed(specs, aborts)
		if len(again) == 0 {
			break
		}
		for _, name := range again {
			c.step("ovs-vswitchd aborted by itself (%s) in: %s: runs again, alone", assertion, name)
			alone := Suite{Name: fmt.Sprintf("%s-%d", s.Name, try), Focus: only(name), Least: 1}
			repeated, err := c.Run(ctx, alone, 1, logs)
			if len(repeated) == 0 {
				return specs, err
			}
			specs = replaced(specs, repeated)
		}
		failed = s.judge(specs, nil)
	}
	if aborts, err := c.aborts(); err == nil {
		c.step("%s: ovs-vswitchd has aborted %d times by itself", s.Name, len(aborts))
	}
	return specs, failed
}

// aborts returns the times at which ovs-vswitchd aborted on that assertion, on all nodes.
func (c *Cluster) aborts() (times []time.Time, err error) {
	for _, node := range c.lab.Nodes() {
		f, err := os.Open(filepath.Join(c.path("log"), node.Name+"-ovs-vswitchd.log"))
		if err != nil {
			return nil, err
		}
		more, err := readAborts(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f.Name(), err)
		}
		times = append(times, more...)
	}
	return times, nil
}

// readAborts parses the log of ovs-vswitchd and its monitor: the assertion has no timestamp, but
// the monitor's message about the exit has one.
func readAborts(log io.Reader) (times []time.Time, err error) {
	asserted := false
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.Contains(line, "assertion "+assertion):
			asserted = true
		case asserted && strings.Contains(line, "killed (Aborted)"):
			stamp, _, _ := strings.Cut(line, "|")
			at, err := time.Parse(time.RFC3339, stamp)
			if err != nil {
				return nil, err
			}
			times, asserted = append(times, at), false
		}
	}
	return times, lines.Err()
}

// disturbed returns the names of failed specs that ran during an abort. The log's times have a
// resolution of seconds.
func disturbed(specs []Spec, aborts []time.Time) (names []string) {
	for _, s := range specs {
		if s.State == "passed" || s.State == "skipped" {
			continue
		}
		for _, at := range aborts {
			if !at.Before(s.Began.Truncate(time.Second)) && !at.After(s.Ended) {
				names = append(names, s.Name)
				break
			}
		}
	}
	return names
}

// only returns a regular expression that matches exactly this name.
func only(name string) string { return regexp.QuoteMeta(name) + "$" }

// replaced returns the specs with the results of repeated ones.
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
