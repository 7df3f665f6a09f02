package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// ACLLogging is the annotation of a namespace that has ovn-controller log the decisions of its
// policies, as in ovn-kubernetes: {"deny": SEVERITY, "allow": SEVERITY}. Both are optional. A
// severity is alert, warning, notice, info or debug.
const ACLLogging = "k8s.ovn.org/acl-logging"

// aclMeter limits the log rate. It is fair: each ACL has the whole rate for itself.
const aclMeter = "acl-logging"

// DefaultACLLogRate is in messages per second and ACL.
const DefaultACLLogRate = 20

// aclLogging has the severities of a namespace's denied and allowed connections; "" is not logged.
type aclLogging struct{ Deny, Allow string }

// aclLoggingOf returns the valid part of the namespace's annotation, together with an error if
// another part is not valid.
func (c *Cluster) aclLoggingOf(namespace string) (aclLogging, error) {
	ns := c.Namespace(namespace)
	if ns == nil || ns.Annotations[ACLLogging] == "" {
		return aclLogging{}, nil
	}

	var l aclLogging
	if err := json.Unmarshal([]byte(ns.Annotations[ACLLogging]), &l); err != nil {
		return aclLogging{}, fmt.Errorf("namespace %s: parse annotation %s: %w", namespace, ACLLogging, err)
	}

	severities := []string{"", "alert", "warning", "notice", "info", "debug"}

	var err error

	for _, s := range []*string{&l.Deny, &l.Allow} {
		if !slices.Contains(severities, *s) {
			err = fmt.Errorf("namespace %s: annotation %s: %q is not one of %s",
				namespace, ACLLogging, *s, strings.Join(severities[1:], ", "))
			*s = ""
		}
	}

	return l, err
}

// logged returns the ACL with logging enabled, unless the severity is "".
func (a ACL) logged(severity string) ACL {
	if severity != "" {
		a.Log, a.Severity, a.Meter = true, severity, aclMeter
	}

	return a
}

// aclLabel returns the name of an ACL in the log. The format is that of ovn-kubernetes:
// NP:<namespace>:<policy>:<direction>:<rule>. The ACLs that deny have no policy and no rule. Those
// of a node's switch are NP:<name of the ACL>:<node>.
func aclLabel(parts ...string) string {
	const maxBytes = 63 // OVN's limit of ACL.name

	label := "NP:" + strings.Join(parts, ":")

	return label[:min(len(label), maxBytes)]
}

// meterRows returns the meter. It exists even if no ACL uses it.
func meterRows(c *Cluster) []Row {
	rate := c.Config.ACLLogRate
	if rate == 0 {
		rate = DefaultACLLogRate
	}

	band := MeterBand{Meter: aclMeter, Action: "drop", Rate: rate}

	return []Row{Meter{Name: aclMeter, Unit: "pktps", Fair: true, Bands: []string{band.ID()}}, band}
}
