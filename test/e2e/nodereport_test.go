package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
)

// nodeReport is what node1 reports at one time.
type nodeReport struct {
	code   int               // of /readyz; 0 if no agent answers
	readyz []string          // lines of /readyz, without ok
	status map[string]string // state and details of the checks of ovnkube status that are not right, by name
	events []string          // reasons and messages of all Events about the Node
}

// report returns what node1 reports now.
func (c *Cluster) report(t *testing.T) nodeReport {
	t.Helper()

	n := c.Node(1)
	r := nodeReport{status: map[string]string{}, events: c.nodeEvents(t, n.Name, "")}

	if code, body, err := c.readyz(n.Name); err == nil {
		r.code = code
		r.readyz = slices.DeleteFunc(strings.Split(strings.TrimSpace(body), "\n"), func(line string) bool { return line == "ok" })
	}

	cmd, err := c.Command(t.Context(), n.Name, c.Binary("ovnkube"), "status", "--json", "--run-dir", n.RunDir)
	if err != nil {
		t.Fatal(err)
	}

	out, err := cmd.Output()
	if ended := new(exec.ExitError); err != nil && !errors.As(err, &ended) { // the exit status tells the state
		t.Fatal(err)
	}

	var said struct {
		Checks []struct{ Name, State, Detail string }
	}
	if err := json.Unmarshal(out, &said); err != nil || len(said.Checks) == 0 {
		t.Fatalf("ovnkube status --json: %v: %s", err, out)
	}

	for _, check := range said.Checks {
		if check.State != status.Right.String() {
			r.status[check.Name] += check.State + ": " + check.Detail + "\n"
		}
	}

	return r
}

// awaitReport waits until /readyz of node1's agent has the code and a line that begins with line,
// and each of the checks of ovnkube status has a state and detail that begin with the text. The code
// is 0 if no agent must answer.
func (c *Cluster) awaitReport(t *testing.T, code int, line string, checks map[string]string) {
	t.Helper()
	within(t, "node1 reports the fault", func() error { return c.report(t).has(code, line, checks) })
}

// has returns an error unless the report is as awaitReport expects it.
func (r nodeReport) has(code int, line string, checks map[string]string) error {
	begins := func(said string) bool { return strings.HasPrefix(said, line) }
	if r.code != code || line != "" && !slices.ContainsFunc(r.readyz, begins) {
		return fmt.Errorf("readyz %d %q, want %d with a line %q", r.code, r.readyz, code, line)
	}

	for _, name := range slices.Sorted(maps.Keys(checks)) {
		if !strings.Contains("\n"+r.status[name], "\n"+checks[name]) {
			return fmt.Errorf("check %s of ovnkube status: %q, want %q", name, r.status[name], checks[name])
		}
	}

	return nil
}

// reportsNothing fails the test unless node1 is ready, and reports nothing that it did not report
// before: neither in /readyz, nor in ovnkube status, nor in an Event. Some faults of earlier tests
// are reported for a minute, so they may end meanwhile.
func (c *Cluster) reportsNothing(t *testing.T, before nodeReport) {
	t.Helper()

	for _, text := range c.report(t).news(before) {
		t.Error(text)
	}
}

// news returns what a report has that an earlier one has not, and whether the node is not ready.
func (r nodeReport) news(before nodeReport) []string {
	var out []string
	if r.code != http.StatusOK {
		out = append(out, fmt.Sprintf("readyz %d: %q", r.code, r.readyz))
	}

	for _, line := range r.readyz {
		if !slices.Contains(before.readyz, line) {
			out = append(out, "a new line of readyz: "+line)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(r.status)) {
		var known []string
		if name == "environment" { // the others have figures
			known = strings.Split(before.status[name], "\n")
		}

		for text := range strings.Lines(r.status[name]) {
			text = strings.TrimSuffix(text, "\n")
			if before.status[name] == "" || known != nil && !slices.Contains(known, text) {
				out = append(out, "check "+name+" of ovnkube status: "+text)
			}
		}
	}

	for _, e := range r.events {
		if !slices.Contains(before.events, e) {
			out = append(out, "a new Event: "+e)
		}
	}

	return out
}

// A report that lacks the code, the line of /readyz or a check is not the expected one.
func TestNodeReport_has(t *testing.T) {
	const line = "degraded: no next hop"

	checks := map[string]string{"environment": "degraded: no next hop", "ovn": "broken: "}

	full := func() nodeReport {
		return nodeReport{
			code: http.StatusOK, readyz: []string{"degraded: a clock", line + " answers"},
			status: map[string]string{"environment": "degraded: a clock\ndegraded: no next hop answers\n", "ovn": "broken: ovn-controller does not run\n"},
		}
	}
	if err := full().has(http.StatusOK, line, checks); err != nil {
		t.Error(err)
	}

	for name, lack := range map[string]func(*nodeReport){
		"code": func(r *nodeReport) { r.code = http.StatusServiceUnavailable },
		"line": func(r *nodeReport) { r.readyz = r.readyz[:1] }, "fault in status": func(r *nodeReport) { r.status["environment"] = "degraded: a clock\n" },
		"state of a check": func(r *nodeReport) { r.status["ovn"] = "degraded: ovn-controller does not run\n" }, "check": func(r *nodeReport) { delete(r.status, "ovn") },
	} {
		r := full()
		if lack(&r); r.has(http.StatusOK, line, checks) == nil {
			t.Errorf("nothing notices another %s", name)
		}
	}
}

// The news of a report includes every difference, except faults that ended and changed figures of a check.
func TestNodeReport_news(t *testing.T) {
	before := nodeReport{
		code: http.StatusOK, readyz: []string{"degraded: a clock"}, events: []string{"ClockDiffers: a clock"},
		status: map[string]string{"environment": "degraded: a clock\n", "ports": "degraded: 2 host sockets listen\n"},
	}
	for _, tt := range []struct {
		name string
		now  nodeReport
		news int
	}{
		{"same", before, 0},
		{"ended", nodeReport{code: http.StatusOK, status: map[string]string{"ports": "degraded: 3 host sockets listen\n"}, events: before.events}, 0},
		{"not ready", nodeReport{code: http.StatusServiceUnavailable, readyz: []string{"no gateway"}}, 2},
		{"a line of readyz", nodeReport{code: http.StatusOK, readyz: []string{"degraded: a disk", "degraded: a clock"}}, 1},
		{"a check", nodeReport{code: http.StatusOK, status: map[string]string{"ovn": "broken: it does not run\n"}}, 1},
		{"a fault", nodeReport{code: http.StatusOK, status: map[string]string{"environment": "degraded: a clock\ndegraded: a disk\n"}}, 1},
		{"an Event", nodeReport{code: http.StatusOK, events: []string{"ClockDiffers: a clock", "DiskFull: a disk"}}, 1},
	} {
		if got := tt.now.news(before); len(got) != tt.news {
			t.Errorf("%s: %q, want %d", tt.name, got, tt.news)
		}
	}
}
