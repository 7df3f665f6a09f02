package shadow

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// checkInterval is how often Shadow checks whether the programs were replaced, and whether missing
// programs are there.
const checkInterval = time.Second

// Options configures New.
type Options struct {
	PinDir string // of the gateway's programs
	Rate   uint32 // limit of comparisons per second
	Log    *slog.Logger
}

// Stats are numbers of samples since the start.
type Stats struct {
	Compared   map[string]uint64 // by the programs' reason (verdict.Reason) for the decision
	Mismatched map[string]uint64 // those of Compared for which the model has another reason
	Skipped    map[string]uint64 // samples that were not compared, by cause; every cause is listed
}

// Causes of skipping a sample.
const (
	skipChanged = "changed"
	skipCut     = "cut"
	skipFailed  = "failed"
)

// Shadow compares live decisions with the model. Stats is safe for concurrent use with Run.
type Shadow struct {
	o     Options
	plant func(*verdict.Config) // in tests: see judge

	mu    sync.Mutex // guards the fields below
	stats Stats
}

// New returns a Shadow. It does nothing before Run.
func New(o Options) *Shadow {
	return &Shadow{o: o, stats: Stats{
		Compared: map[string]uint64{}, Mismatched: map[string]uint64{},
		Skipped: map[string]uint64{skipChanged: 0, skipCut: 0, skipFailed: 0},
	}}
}

// Stats returns a copy of the numbers.
func (s *Shadow) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()

	return Stats{
		Compared:   maps.Clone(s.stats.Compared),
		Mismatched: maps.Clone(s.stats.Mismatched),
		Skipped:    maps.Clone(s.stats.Skipped),
	}
}

// Run compares until ctx ends, across reloads of the programs. It must run in their network
// namespace. It returns nil, early if the kernel has no tcx.
func (s *Shadow) Run(ctx context.Context) error {
	hasWarned := false

	for {
		err := s.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}

		if errors.Is(err, bpf.ErrNoTCX) {
			s.o.Log.Warn("decisions are not compared with the model", "error", err)
			return nil
		}

		// Before the gateway attaches its programs, the monitor cannot compare anything.
		isFault := err != nil && !errors.Is(err, bpf.ErrNotAttached)
		if isFault && !hasWarned {
			s.o.Log.Warn("decisions are not compared with the model, trying again", "error", err)
		}

		hasWarned = isFault

		if !loop.Pause(ctx, checkInterval) {
			return nil
		}
	}
}

// follow compares the decisions of one load of the programs. It returns nil when another load
// replaced it.
func (s *Shadow) follow(ctx context.Context) error {
	m, err := bpf.OpenMonitor(s.o.PinDir, bpf.MonitorOptions{Rate: s.o.Rate})
	if err != nil {
		return err
	}
	defer m.Close()

	rules, err := bpf.OpenExplainer(s.o.PinDir)
	if err != nil {
		return err
	}
	defer rules.Close()

	s.o.Log.Info("decisions are compared with the model", "layout", m.Layout.String(), "rate", s.o.Rate)

	j := &judge{rules: rules, plant: s.plant}
	for ctx.Err() == nil && !m.Stale() {
		if err := s.compareSamples(ctx, m, j); err != nil {
			return err
		}
	}

	return nil
}

// compareSamples compares samples for one checkInterval.
func (s *Shadow) compareSamples(ctx context.Context, m *bpf.Monitor, j *judge) error {
	end := time.Now().Add(checkInterval)
	m.SetDeadline(end)

	defer context.AfterFunc(ctx, func() { m.SetDeadline(time.Now()) })()

	for ctx.Err() == nil && time.Now().Before(end) {
		sample, err := m.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}

		if err != nil {
			return fmt.Errorf("read decisions: %w", err)
		}

		s.compare(m, j, sample)
	}

	return nil
}

// compare compares one sample, and counts the outcome.
func (s *Shadow) compare(m *bpf.Monitor, j *judge, sample bpf.Sample) {
	got, model, err := j.compare(sample)
	if got == different && m.Stale() {
		got = changed // the judge's rules are of a former load, which does not know new entries
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case err != nil:
		s.o.Log.Debug("decision not compared", "reason", sample.Reason, "error", err)
		s.stats.Skipped[skipFailed]++

		return
	case got == changed:
		s.o.Log.Debug("decision not compared, the tables have changed",
			"reason", sample.Reason, "model", model, "frame", hex.EncodeToString(sample.Frame))
		s.stats.Skipped[skipChanged]++

		return
	case got == cut:
		s.stats.Skipped[skipCut]++
		return
	}

	s.stats.Compared[sample.Reason]++

	if got == same {
		return
	}

	s.stats.Mismatched[sample.Reason]++
	if s.stats.Mismatched[sample.Reason] == 1 { // one log entry per reason is enough for diagnosis
		s.o.Log.Warn("the gateway's programs and the model disagree: please report this",
			"reason", sample.Reason, "model", model, "from", sample.From.String(), "length", sample.Len,
			"vlan", sample.TCI, "frame", hex.EncodeToString(sample.Frame))
	}
}
