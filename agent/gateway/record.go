package gateway

import (
	"log/slog"
	"maps"
	"sync"
)

// Names of the optional parts, in the log and in metrics. One that fails is logged, counted and
// tried again. It keeps no other part from its work.
const (
	partSockets  = "host_to_service"     // translation of the host's own sockets
	partGate     = "bind_gate"           // the gate opens when a socket binds, not at the next scan
	partScan     = "sockets"             // the host's sockets in the SNAT range are listed
	partProtos   = "host_protocols"      // which protocols without ports are the host's
	partAhead    = "foreign_program"     // a foreign program stands before ours
	partLookup   = "service_host"        // sockets of the host behind externalTrafficPolicy Local
	partDestroy  = "socket_destroy"      // end of UDP sockets whose endpoint is gone
	partTracking = "connection_tracking" // connections of before a takeover, use of the SNAT range
)

// healthyParts lists every optional part as healthy.
func healthyParts() map[string]string {
	out := map[string]string{}
	for _, part := range []string{partSockets, partGate, partScan, partProtos, partAhead, partLookup, partDestroy} {
		out[part] = ""
	}
	return out
}

// Stats count since the start.
type Stats struct {
	Repairs   map[string]uint64 // by part, after the first time it was right
	Listeners int               // sockets of the host that listen inside the SNAT range
	SNATPorts int               // size of the SNAT range, 0: not known
	PortUse   []Use             // of the SNAT range towards the remotes where it is fullest, those first
	Degraded  map[string]string // what optional parts lack, by part; "" for nothing
}

// recorder holds the Stats. Its methods are safe for concurrent use.
type recorder struct {
	log *slog.Logger

	mu    sync.Mutex // guards stats
	stats Stats
}

// newRecorder lists every kind of repair at zero, so that a metric shows the first one as a change.
func newRecorder(log *slog.Logger) *recorder {
	return &recorder{log: log, stats: Stats{
		Repairs:  map[string]uint64{"flows": 0, "uplink_port": 0, "attach_bridge": 0, "attach_uplink": 0, "bridge_device": 0},
		Degraded: healthyParts(),
	}}
}

// repaired counts a correction of something that was right before.
func (r *recorder) repaired(part string) {
	r.log.Info("repaired", "part", part)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Repairs[part]++
}

// degraded notes what an optional part lacks, nil for nothing.
func (r *recorder) degraded(part string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if !r.note(part, text) {
		return
	}
	if text == "" {
		r.log.Info("optional part works", "part", part)
	} else {
		r.log.Warn("an optional part does not work", "part", part, "error", err)
	}
}

// note returns false if the part lacked the same before.
func (r *recorder) note(part, text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stats.Degraded[part] == text {
		return false
	}
	next := maps.Clone(r.stats.Degraded) // readers have the map of before
	next[part] = text
	r.stats.Degraded = next
	return true
}

func (r *recorder) setListeners(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Listeners = n
}

func (r *recorder) setPortUse(uses []Use, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.PortUse, r.stats.SNATPorts = uses, size
}

// read returns a copy.
func (r *recorder) read() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.stats
	out.Repairs = maps.Clone(r.stats.Repairs)
	return out
}
