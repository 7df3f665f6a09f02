package bpf

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// Number and seed of TestGateway_agreesWithModel's random frames.
const (
	framesEnv     = "OVN_EBPF_MODEL_FRAMES"
	seedEnv       = "OVN_EBPF_MODEL_SEED"
	defaultFrames = 100000
	framesPerNode = 400
)

// The programs decide every named case as its row expects, in each of its layouts.
func TestGateway_decidesCorpus(t *testing.T) {
	cases := corpus.Cases()

	for _, layout := range corpusLayouts {
		t.Run(layout.String(), func(t *testing.T) {
			r := newRig(t, layout)
			total := 0

			for _, c := range cases {
				if !c.In(layout) {
					continue
				}

				total++

				if r.node != c.Node {
					r.set(t, c.Node)
				}

				if got := r.send(t, c.Dir, c.Frame); got.reasons != c.Want.String() {
					t.Errorf("%s: decided by %s, want %s\nframe %x", c.Name, got.reasons, c.Want, c.Frame)
				} else if want := r.outcome(c.Want); got.ret != want.ret || got.mark != want.mark {
					t.Errorf("%s: by %s: %+v, want %+v", c.Name, c.Want, got, want)
				}
			}

			t.Logf("%d of %d cases", total, len(cases))
		})
	}
}

// Programs and model decide random frames at random nodes alike, with the same changes of the
// tables.
func TestGateway_agreesWithModel(t *testing.T) {
	seed, frames := randomtest.Seed(t, seedEnv), envUint(t, framesEnv, defaultFrames)
	t.Logf("%d frames", frames)

	for _, layout := range corpusLayouts {
		t.Run(layout.String(), func(t *testing.T) {
			m := &modelRun{
				rig:  newRig(t, layout),
				gen:  corpus.NewGenerator(seed, corpus.Options{Layout: layout, Tags: true, Mangle: true}),
				seen: make(map[verdict.Reason]int),
			}

			for i := range frames / uint64(len(corpusLayouts)) {
				if i%framesPerNode == 0 {
					m.next(t)
				}

				m.frame(t)
			}

			m.compare(t)
			t.Logf("%d frames refused by the kernel, decided by %v", m.refused, m.seen)
		})
	}
}

// modelRun runs programs and model side by side.
type modelRun struct {
	*rig
	gen     *corpus.Generator
	model   verdict.Model
	seen    map[verdict.Reason]int
	refused int
}

// next compares the tables and continues with another node.
func (m *modelRun) next(t *testing.T) {
	t.Helper()

	if m.node != nil {
		m.compare(t)
	}

	m.set(t, m.gen.Node())
	m.model = m.node.Model(m.since)
}

// frame sends one frame through both.
func (m *modelRun) frame(t *testing.T) {
	t.Helper()

	dir, frame := m.gen.Frame(m.node)

	_, _, untagged := corpus.Untag(frame)
	if len(untagged) < 14 {
		return
	}

	got := m.send(t, dir, frame)
	if errors.Is(got.err, unix.EINVAL) && len(untagged) < 14+40 {
		m.refused++ // IP header cut short: newer kernels refuse to run it
		return
	}

	if got.err != nil {
		t.Fatal(got.err)
	}

	now := monotonic(t)
	want := m.model.Decide(dir, verdict.Parse(frame), now)
	m.model.Tables.Apply(want, now)
	m.seen[want.Reason]++

	expect := m.outcome(want.Reason)
	if got.reasons != want.Reason.String() || got.ret != expect.ret || got.mark != expect.mark {
		t.Fatalf("%s: %+v, the model says %s %+v\nconfig %+v\nframe %x",
			dir, got, want.Reason, expect, m.node.Config, frame)
	}
}

// compare compares the programs' learned entries with the model's tables.
func (m *modelRun) compare(t *testing.T) {
	t.Helper()

	opts := cmp.Options{cmpopts.EquateComparable(verdict.NSKey{}, verdict.FragKey{}, verdict.FlowKey{}), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(keys(m.model.Tables.NS), m.learnedNS(t), opts); diff != "" {
		t.Errorf("N-S table (-model +program):\n%s", diff)
	}

	owners := make(map[verdict.FragKey]verdict.Verdict)
	for k, f := range m.model.Tables.Frags {
		owners[k] = f.Owner
	}

	if diff := cmp.Diff(owners, m.learnedFrags(t), opts); diff != "" {
		t.Errorf("fragment table (-model +program):\n%s", diff)
	}

	if diff := cmp.Diff(keys(m.model.Tables.Flows), m.learnedFlows(t), opts); diff != "" {
		t.Errorf("flow table (-model +program):\n%s", diff)
	}

	if t.Failed() {
		t.FailNow()
	}
}

// Programs do not modify frames, except the destination MAC of frames to the host in bridged.
func TestGateway_leavesFramesUnchanged(t *testing.T) {
	for _, layout := range corpusLayouts {
		r := newRig(t, layout)

		for _, c := range corpus.Cases() {
			if !c.In(layout) {
				continue
			}

			if r.node != c.Node {
				r.set(t, c.Node)
			}

			got, _, want := r.send(t, c.Dir, c.Frame), 0, c.Frame

			_, _, want = corpus.Untag(want)
			if layout == verdict.Bridged && c.Node.Config.Connected && c.Dir == verdict.FromOVN && c.Want.Verdict() == verdict.Host {
				want = slices.Concat(corpus.NodeMAC[:], want[6:])
			}

			if !bytes.Equal(got.out, want) {
				t.Errorf("%s in %s: changed to %x, want %x", c.Name, layout, got.out, want)
			}
		}
	}
}

func envUint(t *testing.T, name string, value uint64) uint64 {
	t.Helper()

	s := os.Getenv(name)
	if s == "" {
		return value
	}

	value, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}

	return value
}

func keys[K comparable](m map[K]time.Duration) map[K]bool {
	set := make(map[K]bool, len(m))
	for k := range m {
		set[k] = true
	}

	return set
}
