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
	same      outcome = iota // model and programs have the same reason
	different                // they have different reasons, with the same configuration and entries
	changed                  // not compared: configuration or entries changed meanwhile
	cut                      // not compared: the deciding bytes may be beyond the capture
)

// maxTries limits the reads of entries that keep changing.
const maxTries = 5

// judge compares decisions of one load of the programs. It is not safe for concurrent use.
type judge struct {
	rules *bpf.Explainer        // runs the programs' rules without effect, and reads their tables
	plant func(*verdict.Config) // in tests: a fault in the model's input
}

// compare compares a sample with the model's decision. It returns the outcome and the model's
// reason, or "" without a decision of the model.
func (j *judge) compare(s bpf.Sample) (outcome, string, error) {
	q, ok := newQuestion(s)
	if !ok {
		return cut, "", nil
	}

	current, err := j.readState(q)
	if err != nil {
		return 0, "", err
	}

	var failed error // of the socket lookup

	// The socket lookup costs a dry run, which few packets need.
	model := j.decide(q, current, s.At, func() bool {
		x, err := j.rules.Explain(s.From, q.frame)
		failed = ignoreShort(err)

		return hasSocket(x)
	})

	if failed != nil {
		return 0, "", failed
	}

	if model == s.Reason {
		return same, model, nil
	}

	return j.compareStable(s.From, q)
}

// compareStable compares the decisions that rules and model make now, with equal entries before and
// after (see the package comment). The sample's own decision may have met other entries.
func (j *judge) compareStable(dir verdict.Direction, q question) (outcome, string, error) {
	for range maxTries {
		before, err := j.readState(q)
		if err != nil {
			return 0, "", err
		}

		x, err := j.rules.Explain(dir, q.frame)
		pathsDiffer := errors.Is(err, bpf.ErrShortWay)

		if err = ignoreShort(err); err != nil {
			return 0, "", err
		}

		after, err := j.readState(q)
		if err != nil {
			return 0, "", err
		}

		if !reflect.DeepEqual(before, after) {
			continue
		}

		model := j.decide(q, before, x.At, func() bool { return hasSocket(x) })

		agree := model == x.Reason && !pathsDiffer
		if agree || hasNewMAC(before.config) {
			return changed, model, nil
		}

		return different, model, nil
	}

	return changed, "", nil
}

// hasNewMAC reports whether the uplink has another MAC address than the programs' configuration,
// for example after the failover of a bond. By the uplink's address, the kernel marks frames that
// are for the host (skb->pkt_type). The programs rely on that, so they differ from the model until
// the agent has written the new address.
func hasNewMAC(c bpf.Config) bool {
	uplink, err := net.InterfaceByIndex(c.Uplink)
	return err == nil && len(uplink.HardwareAddr) > 0 && !bytes.Equal(uplink.HardwareAddr, c.NodeMAC[:])
}

// readState reads the configuration and all entries that may decide q.
func (j *judge) readState(q question) (*state, error) {
	if err := j.rules.ReadConfig(); err != nil {
		return nil, err
	}

	entries, err := j.rules.Entries(q.keys)
	if err != nil {
		return nil, fmt.Errorf("compare with the model: %w", err)
	}

	return &state{config: j.rules.Config, entries: entries}, nil
}

// decide returns the model's reason at a time on CLOCK_MONOTONIC. isOfSocket reports whether a host
// socket owns the packet.
func (j *judge) decide(q question, s *state, at time.Duration, isOfSocket func() bool) string {
	c := s.config.Model()
	if j.plant != nil {
		j.plant(c)
	}

	m := verdict.Model{Config: c, Tables: s.tables(isOfSocket)}

	return m.Decide(q.dir, q.parsed, at).Reason.String()
}

// hasSocket returns the result of the rules' socket lookup. Only the kernel knows its sockets, so
// the model reuses the result that the rules got.
func hasSocket(x bpf.Explanation) bool {
	return slices.ContainsFunc(x.Steps, func(s bpf.Step) bool { return s.Asked == "socket" && s.Number != 0 })
}

// ignoreShort ignores bpf.ErrShortWay: short and full path differ, but the explanation is valid.
func ignoreShort(err error) error {
	if errors.Is(err, bpf.ErrShortWay) {
		return nil
	}

	return err
}

// state is the configuration and the entries by which the programs decide one packet.
type state struct {
	config  bpf.Config
	entries bpf.Entries
}

// tables converts the entries for the model. It calls isOfSocket for packets to a port that host
// sockets may have, or to a frontend.
func (s *state) tables(isOfSocket func() bool) *verdict.Tables {
	t := &s.entries.Tables
	t.HostSocket = func(k verdict.Socket) bool {
		return s.entries.Gated[bpf.SocketKey{Proto: k.Proto, Port: k.Local.Port()}] && isOfSocket()
	}
	t.HostConnection = func(verdict.Socket) verdict.ConnectionState {
		if isOfSocket() {
			return verdict.Connected
		}

		return verdict.NotConnected
	}

	return t
}
