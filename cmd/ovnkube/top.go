package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/busy"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

const topDetail = `It shows classes of packets, by origin and receiver. Each class has its rate and its busiest flows. The busiest
Service ports follow. Rates of classes and Services are exact, because they come from counters. Rates of flows
are estimated from a sample of at most -rate packets per second. It costs as much as 'ovnkube gateway monitor',
and nothing while it does not run. On a terminal, it redraws the screen until Ctrl-C.
It needs Linux 6.6 and the eBPF backend.

  ovnkube gateway top                      new rates every two seconds
  ovnkube gateway top -once -interval 10s  rates of the next ten seconds
  ovnkube gateway top -once -json          output for scripts`

// top holds the flags of the command, and the agent that they lead to.
type top struct {
	finder
	agent      agentInfo
	interval   time.Duration
	rows, rate int
	once, json bool
}

func topCommand(f *flag.FlagSet) action {
	t := &top{finder: newPinFinder(f)}
	f.DurationVar(&t.interval, "interval", 2*time.Second, "`time` over which rates are measured")
	f.IntVar(&t.rows, "rows", 5, "maximum `number` of flows per class, and of Service ports")
	f.IntVar(&t.rate, "rate", 20000, "maximum number of sampled `packets` per second")
	f.BoolVar(&t.once, "once", false, "end after one interval")
	f.BoolVar(&t.json, "json", false, "print one JSON object per interval")

	return t.run
}

// picture is one interval, as printed by -json.
type picture struct {
	Time     time.Time      `json:"time"`
	Seconds  float64        `json:"seconds"`
	Classes  []classShown   `json:"classes"`
	Services []serviceShown `json:"services"`
	Missed   uint64         `json:"missed"` // packets missing in the sample
	Note     string         `json:"note,omitempty"`
}

// classShown is a class with its rate per second and its busiest flows.
type classShown struct {
	From    string      `json:"from"`
	Verdict string      `json:"verdict"`
	Rate    busy.Rate   `json:"rate"`
	Flows   []flowShown `json:"flows"`
}

type flowShown struct {
	Protocol    string    `json:"protocol"`
	Source      string    `json:"source"`
	Destination string    `json:"destination"`
	Reason      string    `json:"reason"`
	Rate        busy.Rate `json:"rate"`
}

type serviceShown struct {
	Service string    `json:"service"`
	Rate    busy.Rate `json:"rate"`
}

func (t *top) run(ctx context.Context, _ []string, env *environment) error {
	if t.interval < 100*time.Millisecond || t.rows < 1 || t.rate < 1 || t.rate > 1e6 {
		return errors.New("want -interval of at least 100ms, -rows of at least 1, and -rate of 1..1000000")
	}

	var err error
	if t.agent, err = t.find(ctx, env); err != nil {
		return err
	}

	m, err := openMonitor(t.agent, bpf.MonitorOptions{Rate: uint32(t.rate)})
	if err != nil {
		return err
	}
	defer m.Close()

	clearScreen := ""
	if isTerminal(env.stdout) {
		clearScreen = "\x1b[H\x1b[2J" // cursor to the top, erase all
	}

	for {
		p, err := t.measureInterval(ctx, m)
		if err != nil || ctx.Err() != nil {
			return err
		}

		if t.json {
			err = json.NewEncoder(env.stdout).Encode(p)
		} else {
			_, err = fmt.Fprint(env.stdout, clearScreen, p.String())
		}

		if err != nil || t.once {
			return err
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, isFile := w.(*os.File)
	if !isFile {
		return false
	}

	info, err := f.Stat()

	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// measureInterval samples packets for one interval. It reads the counters before and after it.
func (t *top) measureInterval(ctx context.Context, m *bpf.Monitor) (picture, error) {
	p := picture{Classes: []classShown{}, Services: []serviceShown{}}

	missedBefore, err := m.Missed()
	if err != nil {
		return p, err
	}

	servicesBefore, note := t.services(ctx)
	begun := time.Now()

	before, err := bpf.ReadCounters(t.agent.pinDir)
	if err != nil {
		return p, err
	}

	tally := busy.New(m.Layout)
	if err := t.sample(ctx, m, tally, begun.Add(t.interval)); err != nil {
		return p, err
	}

	after, err := bpf.ReadCounters(t.agent.pinDir)
	if err != nil {
		return p, err
	}

	p.Time = time.Now()
	p.Seconds = p.Time.Sub(begun).Seconds()

	for _, group := range tally.Groups(before, after, p.Seconds, t.rows) {
		p.Classes = append(p.Classes, classOf(group))
	}

	if note == "" {
		var servicesAfter map[string]status.ServiceCount

		servicesAfter, note = t.services(ctx)
		p.Services = t.busiest(servicesBefore, servicesAfter, time.Since(begun).Seconds())
	}

	p.Note = note
	missedAfter, err := m.Missed()
	p.Missed = missedAfter - missedBefore

	return p, err
}

// sample adds decisions to the tally until the given time, or until ctx ends.
func (t *top) sample(ctx context.Context, m *bpf.Monitor, tally *busy.Tally, until time.Time) error {
	for ctx.Err() == nil && time.Now().Before(until) {
		// Short steps let Ctrl-C take effect quickly.
		next := time.Now().Add(200 * time.Millisecond)
		if next.After(until) {
			next = until
		}

		m.SetDeadline(next)

		s, err := m.Read()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if m.Stale() {
				return errors.New("the agent has attached other programs, or none; start top again")
			}
		case err != nil:
			return fmt.Errorf("read decisions: %w", err)
		default:
			tally.Add(s.Reason, verdict.Parse(s.Frame), s.Len)
		}
	}

	return nil
}

// services reads the counts of Services from the agent. If they are unavailable, note says why.
func (t *top) services(ctx context.Context) (counts map[string]status.ServiceCount, note string) {
	record, err := status.Read(t.agent.runDir)
	if err == nil {
		counts, err = status.Services(ctx, record.Paths)
	}

	if err != nil {
		return nil, fmt.Sprintf("Services are not known: %v", err)
	}

	return counts, ""
}

// busiest returns the Services with the highest rates, at most as many as the flag -rows allows.
func (t *top) busiest(before, after map[string]status.ServiceCount, seconds float64) []serviceShown {
	out := []serviceShown{}

	for name, c := range after {
		earlier := before[name]
		if c.Packets > earlier.Packets { // not if the counters were reset
			rate := busy.Rate{
				Packets: (c.Packets - earlier.Packets) / seconds,
				Bytes:   (c.Bytes - earlier.Bytes) / seconds,
			}
			out = append(out, serviceShown{name, rate})
		}
	}

	slices.SortFunc(out, func(a, b serviceShown) int {
		return cmp.Or(cmp.Compare(b.Rate.Bytes, a.Rate.Bytes), cmp.Compare(a.Service, b.Service))
	})

	return out[:min(t.rows, len(out))]
}
