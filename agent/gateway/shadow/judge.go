package shadow

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// outcome is the result of a comparison.
type outcome int

const (
	same outcome = iota
	different
	changed // the tables or the matched entries changed meanwhile
	cut     // the deciding bytes may be beyond the capture
)

// tries limits the reads of entries that keep changing.
const tries = 5

// judge compares decisions of one load of the programs.
type judge struct {
	rules *bpf.Explainer
	plant func(*verdict.Config) // in tests: a fault in the model's input
}

// judge compares a sample with the model's decision.
func (j *judge) judge(s bpf.Sample) (outcome, string, error) {
	q, ok := ask(s)
	if !ok {
		return cut, "", nil
	}

	now, err := j.look(q)
	if err != nil {
		return 0, "", err
	}

	var failed error

	model := j.decide(q, now, s.At, func() bool {
		x, err := j.rules.Explain(s.From, q.frame)
		failed = ignoreShort(err)

		return socketLookup(x)
	})

	if failed != nil {
		return 0, "", failed
	}

	if model == s.Reason {
		return same, model, nil
	}

	return j.compareStable(s.From, q)
}

// compareStable compares the current decisions while the entries are stable.
func (j *judge) compareStable(dir verdict.Direction, q question) (outcome, string, error) {
	for range tries {
		before, err := j.look(q)
		if err != nil {
			return 0, "", err
		}

		x, err := j.rules.Explain(dir, q.frame)
		short := errors.Is(err, bpf.ErrShortWay)

		if err = ignoreShort(err); err != nil {
			return 0, "", err
		}

		after, err := j.look(q)
		if err != nil {
			return 0, "", err
		}

		if !reflect.DeepEqual(before, after) {
			continue
		}

		model := j.decide(q, before, x.At, func() bool { return socketLookup(x) })
		if model == x.Reason && !short || moved(before.config) {
			return changed, model, nil
		}

		return different, model, nil
	}

	return changed, "", nil
}

// moved reports whether the uplink has another MAC address than the programs are configured with.
// The kernel tells the programs by its address whether a frame is for the host, so they differ from
// the model until the agent has followed, as after the failover of a bond.
func moved(c bpf.Config) bool {
	uplink, err := net.InterfaceByIndex(c.Uplink)
	return err == nil && len(uplink.HardwareAddr) > 0 && !bytes.Equal(uplink.HardwareAddr, c.NodeMAC[:])
}

func (j *judge) look(q question) (*seen, error) {
	if err := j.rules.ReadConfig(); err != nil {
		return nil, err
	}

	entries, err := j.rules.Entries(q.keys)
	if err != nil {
		return nil, fmt.Errorf("compare with the model: %w", err)
	}

	return &seen{config: j.rules.Config, entries: entries}, nil
}

// decide returns the model's reason at a time on CLOCK_MONOTONIC.
func (j *judge) decide(q question, s *seen, at time.Duration, owns func() bool) string {
	c := s.config.Model()
	if j.plant != nil {
		j.plant(c)
	}

	m := verdict.Model{Config: c, Tables: s.tables(owns)}

	return m.Decide(q.dir, q.read, at).Reason.String()
}

// socketLookup returns the socket lookup's result. Only the kernel knows its sockets, so the model
// reuses the result that the rules got.
func socketLookup(x bpf.Explanation) bool {
	return slices.ContainsFunc(x.Steps, func(s bpf.Step) bool { return s.Asked == "socket" && s.Number != 0 })
}

// ignoreShort ignores bpf.ErrShortWay, because the explanation is valid nevertheless.
func ignoreShort(err error) error {
	if errors.Is(err, bpf.ErrShortWay) {
		return nil
	}

	return err
}

// seen is the state that the programs decide by.
type seen struct {
	config  bpf.Config
	entries bpf.Entries
}

// tables converts the entries for the model. owns reports whether a host socket owns the packet to
// a gated port or a frontend.
func (s *seen) tables(owns func() bool) *verdict.Tables {
	t := &s.entries.Tables
	t.HostSocket = func(k verdict.Socket) bool {
		return s.entries.Gated[bpf.SocketKey{Proto: k.Proto, Port: k.Local.Port()}] && owns()
	}
	t.HostConnection = func(verdict.Socket) verdict.ConnectionState {
		if owns() {
			return verdict.Connected
		}

		return verdict.NotConnected
	}

	return t
}
