package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Names of the optional parts, in the log and in metrics. A fault of an optional part is logged and
// published, and the part is retried. It does not stop other parts.
const (
	partSockets   = "host_to_service"     // translation for the host's own sockets
	partGate      = "bind_gate"           // immediate notice of binds; without it, sockets are found by the next scan
	partScan      = "sockets"             // list of the host's sockets in the SNAT range
	partProtos    = "host_protocols"      // list of the host's protocols without ports
	partAhead     = "foreign_program"     // no foreign program before the agent's
	partLookup    = "service_host"        // host sockets behind externalTrafficPolicy Local
	partDestroy   = "socket_destroy"      // destruction of UDP sockets with a removed endpoint
	partShortcuts = "shortcuts"           // programs on pods' devices
	partTracking  = "connection_tracking" // connections from before a takeover, use of the SNAT range
	partTables    = "tables"              // room in the tables of Services and addresses

	partUntranslated = "older_connections" // deletion of connections that are older than their frontend
)

// Stats are the gateway's counts since the agent's start, and the current state of its parts.
// Callers must not modify maps and slices.
type Stats struct {
	Repairs  map[string]uint64 // count by part: corrections of a state that had been right
	Restored RestoredRoutes    // the last of these repairs that was of a route

	Degraded  map[string]string // fault of each optional part, "" if it works
	Listeners int               // host sockets that listen inside the SNAT range
	SNATPorts int               // size of the SNAT range, 0 if unknown
	PortUse   []PortUse         // remotes with the highest use of the SNAT range, highest first
	Shortcuts *ShortcutStats    // nil: no pod of the node can have them
	Unwritten map[string]int    // entries without room, by table
	Held      int               // objects whose changes wait for the pace of their namespace
}

// RestoredRoutes is the last time when the gateway added routes again that were removed from the
// host. It is zero if that has not happened.
type RestoredRoutes struct {
	Device string
	At     time.Time
}

// ShortcutStats are reasons why pods have no shortcuts. They do not change after publication.
type ShortcutStats struct {
	Causes  []string // why no pod of the node has any at present
	Limited int      // pods' interfaces with a bandwidth limit
}

// recorder holds the Stats. Its methods are safe for concurrent use.
type recorder struct {
	log *slog.Logger

	mu    sync.Mutex // guards stats
	stats Stats
}

// newRecorder lists every kind of repair at zero and every optional part as healthy, so that the
// first repair or fault shows up as a change of the metric.
func newRecorder(log *slog.Logger) *recorder {
	return &recorder{log: log, stats: Stats{
		Repairs: map[string]uint64{
			"flows":         0,
			"uplink_port":   0,
			"attach_bridge": 0,
			"attach_uplink": 0,
			"bridge_device": 0,
			"routes":        0,
		},
		Degraded: map[string]string{
			partSockets:      "",
			partGate:         "",
			partScan:         "",
			partProtos:       "",
			partAhead:        "",
			partLookup:       "",
			partDestroy:      "",
			partShortcuts:    "",
			partTracking:     "",
			partTables:       "",
			partUntranslated: "",
		},
	}}
}

// countRepair counts a correction of a state that had been right. part is one of those in
// newRecorder.
func (r *recorder) countRepair(part string) {
	r.log.Info("repaired", "part", part)
	r.change(func(s *Stats) { s.Repairs[part]++ })
}

// countRestoredRoute counts a route that was added again.
func (r *recorder) countRestoredRoute(device string, at time.Time) {
	r.countRepair("routes")
	r.change(func(s *Stats) { s.Restored = RestoredRoutes{Device: device, At: at} })
}

// setFault records the error of an optional part. A nil error means that it works. Only a change is
// logged.
func (r *recorder) setFault(part string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}

	if !r.setFaultText(part, text) {
		return
	}

	if text == "" {
		r.log.Info("optional part works again", "part", part)
	} else {
		r.log.Warn("optional part degraded", "part", part, "error", err)
	}
}

// setFaultText sets the text of the part's fault, and reports whether it has changed.
func (r *recorder) setFaultText(part, text string) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.stats.Degraded[part] == text {
		return false
	}

	next := maps.Clone(r.stats.Degraded) // readers share the previous map
	next[part] = text
	r.stats.Degraded = next

	return true
}

// setUnwritten records the numbers of entries without room, for the tables of one caller. The node
// works without these entries.
func (r *recorder) setUnwritten(tables map[string]int) {
	r.mu.Lock()

	next := maps.Clone(r.stats.Unwritten) // readers share the previous map
	if next == nil {
		next = map[string]int{}
	}

	maps.Copy(next, tables)
	r.stats.Unwritten = next
	r.mu.Unlock()

	var full []string

	for _, table := range slices.Sorted(maps.Keys(next)) {
		if n := next[table]; n > 0 {
			full = append(full, fmt.Sprintf("table %s is full: %d entries have no room", table, n))
		}
	}

	var err error
	if len(full) > 0 {
		err = errors.New(strings.Join(full, "; "))
	}

	r.setFault(partTables, err)
}

// change changes a part of the Stats.
func (r *recorder) change(change func(*Stats)) {
	r.mu.Lock()
	defer r.mu.Unlock()

	change(&r.stats)
}

// read returns a copy of the Stats. Its maps are not changed afterwards.
func (r *recorder) read() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()

	out := r.stats
	out.Repairs = maps.Clone(r.stats.Repairs)

	return out
}
