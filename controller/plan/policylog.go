package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// ACLLogging is the annotation of a namespace that has its policies' decisions
// logged by ovn-controller, as ovn-kubernetes knows it: {"deny": SEVERITY,
// "allow": SEVERITY}, each of them optional, of alert, warning, notice, info and debug.
const ACLLogging = "k8s.ovn.org/acl-logging"

// aclMeter bounds what is logged; it is fair, so each ACL has the rate for itself.
const aclMeter = "acl-logging"

// DefaultACLLogRate is of messages a second and ACL.
const DefaultACLLogRate = 20

// aclLogging is how severe a namespace's denials and permissions are; "" is not logged.
type aclLogging struct{ Deny, Allow string }

// aclLogging returns what is understood with the error, too.
func (c *Cluster) aclLogging(namespace string) (aclLogging, error) {
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
			err = fmt.Errorf("namespace %s: annotation %s: %q is not one of %s", namespace, ACLLogging, *s, strings.Join(severities[1:], ", "))
			*s = ""
		}
	}
	return l, err
}

// logged is the ACL with what it does logged, unless the severity is "".
func (a ACL) logged(severity string) ACL {
	if severity != "" {
		a.Log, a.Severity, a.Meter = true, severity, aclMeter
	}
	return a
}

// aclLabel is the name under which an ACL is logged, like ovn-kubernetes's:
// NP:<namespace>:<policy>:<direction>:<rule>, or without policy and rule where none allowed it.
func aclLabel(parts ...string) string {
	const most = 63
	s := "NP:" + strings.Join(parts, ":")
	return s[:min(len(s), most)]
}

// meterRows are the meter, there whether it is used or not.
func meterRows(c *Cluster) []Row {
	rate := c.Config.ACLLogRate
	if rate == 0 {
		rate = DefaultACLLogRate
	}
	band := MeterBand{Meter: aclMeter, Action: "drop", Rate: rate}
	return []Row{Meter{Name: aclMeter, Unit: "pktps", Fair: true, Bands: []string{band.ID()}}, band}
}
