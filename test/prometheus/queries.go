package prometheus

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/ovn-ebpf/ovn-ebpf/deploy/monitoring"
)

// Query is one of a dashboard's, with its variables in it.
type Query struct {
	Dashboard, Panel, Expr string
}

// Rule is an alert.
type Rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Rules returns the text of monitoring.RulesFile, and the alerts in it.
func Rules() (text []byte, rules []Rule, err error) {
	if text, err = monitoring.Files.ReadFile(monitoring.RulesFile); err != nil {
		return nil, nil, err
	}

	var file struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []Rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", monitoring.RulesFile, err)
	}

	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}

	return text, rules, nil
}

// Queries returns the queries of all panels of all dashboards.
func Queries() ([]Query, error) {
	names, err := monitoring.Files.ReadDir("dashboards")
	if err != nil {
		return nil, err
	}

	var out []Query

	for _, n := range names {
		text, err := monitoring.Files.ReadFile(path.Join("dashboards", n.Name()))
		if err != nil {
			return nil, err
		}

		var d struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("read dashboard %s: %w", n.Name(), err)
		}

		for _, p := range d.Panels {
			for _, t := range p.Targets {
				out = append(out, Query{n.Name(), p.Title, t.Expr})
			}
		}
	}

	return out, nil
}

// selector is a metric of ours, or up, with what is wanted of its labels.
var selector = regexp.MustCompile(`\b(?:up|(?:ovnkube|ovn|ovs)_[a-z0-9_]+)\b(?:\{[^}]*\})?`)

// Selectors returns what an expression reads, each once.
func Selectors(expr string) []string {
	found := selector.FindAllString(expr, -1)
	slices.Sort(found)

	return slices.Compact(found)
}

// MetricOf returns a selector's metric.
func MetricOf(selector string) string {
	name, _, _ := strings.Cut(selector, "{")
	return name
}

// Substitute fills in a dashboard's variables: all nodes, and the range of a rate.
func Substitute(expr, rate string) string {
	return strings.NewReplacer("$node", ".*", "$__rate_interval", rate).Replace(expr)
}
