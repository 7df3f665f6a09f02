package raft

import (
	"fmt"
	"strings"
)

// parse reads the reply to cluster/status (ovsdb/raft.c of OVS).
func parse(status string) (Local, error) {
	var l Local
	members := false
	for line := range strings.Lines(status) {
		if members {
			if strings.HasPrefix(line, "    ") {
				l.Servers++
			}
			continue
		}
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		var n int
		var err error
		switch key {
		case "Server ID": // short, then the whole in parentheses
			_, l.ID, _ = strings.Cut(strings.TrimSuffix(value, ")"), "(")
		case "Role":
			l.Role = value
		case "Term":
			n, err = fmt.Sscanf(value, "%d", &l.Term)
		case "Log":
			n, err = fmt.Sscanf(value, "[%d, %d]", &l.First, &l.Next)
		case "Entries not yet committed":
			n, err = fmt.Sscanf(value, "%d", &l.NotCommitted)
		case "Entries not yet applied":
			n, err = fmt.Sscanf(value, "%d", &l.NotApplied)
		case "Servers":
			members = true
		}
		if err != nil {
			return Local{}, fmt.Errorf("read cluster/status: line %q, %d numbers: %w", strings.TrimSpace(line), n, err)
		}
	}
	if l.ID == "" || l.Role == "" {
		return Local{}, fmt.Errorf("read cluster/status: no server in %.200q", status)
	}
	return l, nil
}
