package monitoring_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	promtest "github.com/ovn-ebpf/ovn-ebpf/test/prometheus"
)

// casesFile has the rule tests of all alerts, as promtool reads them.
const casesFile = "rules_test.yaml"

// alertCase is one test of casesFile.
type alertCase struct {
	Name   string `json:"name"`
	Series []struct {
		Series string `json:"series"`
	} `json:"input_series"`
	Checks []struct {
		At    string `json:"eval_time"`
		Alert string `json:"alertname"`
		Fires []any  `json:"exp_alerts"`
	} `json:"alert_rule_test"`
}

// fires reports whether the case expects an alert at some time.
func (c alertCase) fires(alert string) bool {
	for _, check := range c.Checks {
		if check.Alert == alert && len(check.Fires) > 0 {
			return true
		}
	}

	return false
}

// checks reports whether the case expects an alert to fire, or not to fire, at some time.
func (c alertCase) checks(alert string) bool {
	for _, check := range c.Checks {
		if check.Alert == alert {
			return true
		}
	}

	return false
}

// has reports whether the case has series of a selector's metric. up is
// a metric of every job.
func (c alertCase) has(selector string) bool {
	name := promtest.MetricOf(selector)
	for _, s := range c.Series {
		if promtest.MetricOf(s.Series) == name && (name != "up" || job.FindString(s.Series) == job.FindString(selector)) {
			return true
		}
	}

	return false
}

var job = regexp.MustCompile(`job="[^"]*"`)

// firesWithout lists the alerts for which the absence of their series is the fault.
var firesWithout = []string{"OVNEBPFNoAgents", "OVNEBPFNoLeader"}

// Every alert has the three cases: it fires, it does not fire though all its series are there, and
// its series are missing, with what fires in its place.
func TestAlertCases(t *testing.T) {
	text, err := os.ReadFile(casesFile)
	if err != nil {
		t.Fatal(err)
	}

	var file struct {
		Tests []alertCase `json:"tests"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}

	cases := map[string]alertCase{}
	for _, c := range file.Tests {
		if _, twice := cases[c.Name]; twice {
			t.Errorf("%s: two cases of the name %q", casesFile, c.Name)
		}

		cases[c.Name] = c
	}

	_, rules, err := promtest.Rules()
	if err != nil {
		t.Fatal(err)
	}

	take := func(name string) alertCase {
		c, is := cases[name]
		if !is {
			t.Errorf("%s: no case %q", casesFile, name)
		}

		delete(cases, name)

		return c
	}
	for _, r := range rules {
		fires, quiet, missing := take(r.Alert+" fires"), take(r.Alert+" does not fire"), take(r.Alert+", series missing")
		if !fires.fires(r.Alert) {
			t.Errorf("%q: the alert is not expected to fire", fires.Name)
		}

		if !quiet.checks(r.Alert) || quiet.fires(r.Alert) {
			t.Errorf("%q: the alert is not expected to stay silent", quiet.Name)
		}

		for _, s := range promtest.Selectors(r.Expr) {
			if !quiet.has(s) {
				t.Errorf("%q: %s is missing, so silence proves nothing", quiet.Name, s)
			}

			if missing.has(s) {
				t.Errorf("%q: %s is there", missing.Name, s)
			}
		}

		if !missing.checks(r.Alert) || missing.fires(r.Alert) != slices.Contains(firesWithout, r.Alert) {
			t.Errorf("%q: the alert itself is expected to fire: %v, want %v", missing.Name, missing.fires(r.Alert), slices.Contains(firesWithout, r.Alert))
		}

		if !slices.ContainsFunc(rules, func(other promtest.Rule) bool { return missing.fires(other.Alert) }) {
			t.Errorf("%q: nothing fires, so the fault that takes the series away goes unnoticed", missing.Name)
		}
	}

	for name := range cases {
		t.Errorf("%s: the case %q is of no alert", casesFile, name)
	}
}

// promtool evaluates every case of every alert.
func TestAlerts(t *testing.T) {
	out, err := exec.Command("promtool", "test", "rules", casesFile).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "SUCCESS") {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}
