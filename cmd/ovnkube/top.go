package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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

// top holds the flags of the command.
type top struct {
	finder
	at         agentInfo
	interval   time.Duration
	rows, rate int
	once, json bool
}

func topCommand(f *flag.FlagSet) action {
	o := &top{finder: newPinFinder(f)}
	f.DurationVar(&o.interval, "interval", 2*time.Second, "`time` over which rates are measured")
	f.IntVar(&o.rows, "rows", 5, "maximum `number` of flows per class, and of Service ports")
	f.IntVar(&o.rate, "rate", 20000, "maximum number of sampled `packets` per second")
	f.BoolVar(&o.once, "once", false, "end after one interval")
	f.BoolVar(&o.json, "json", false, "print one JSON object per interval")

	return o.run
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

func (o *top) run(ctx context.Context, _ []string, env *environment) error {
	if o.interval < 100*time.Millisecond || o.rows < 1 || o.rate < 1 || o.rate > 1e6 {
		return errors.New("want -interval of at least 100ms, -rows of at least 1, and -rate of 1..1000000")
	}

	var err error
	if o.at, err = o.find(ctx, env); err != nil {
		return err
	}

	m, err := openMonitor(o.at, bpf.MonitorOptions{Rate: uint32(o.rate)})
	if err != nil {
		return err
	}
	defer m.Close()

	wipe := ""

	if f, ok := env.stdout.(*os.File); ok && !o.json {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			wipe = "\x1b[H\x1b[2J"
		}
	}

	for {
		p, err := o.measureInterval(ctx, m)
		if err != nil || ctx.Err() != nil {
			return err
		}

		if o.json {
			err = json.NewEncoder(env.stdout).Encode(p)
		} else {
			_, err = fmt.Fprint(env.stdout, wipe, p.String())
		}

		if err != nil || o.once {
			return err
		}
	}
}

// measureInterval measures one interval.
func (o *top) measureInterval(ctx context.Context, m *bpf.Monitor) (picture, error) {
	p := picture{Classes: []classShown{}, Services: []serviceShown{}}

	missed, err := m.Missed()
	if err != nil {
		return p, err
	}

	servicesBefore, note := o.services(ctx)
	begun := time.Now()

	before, err := bpf.ReadCounters(o.at.pinDir)
	if err != nil {
		return p, err
	}

	tally := busy.New(m.Layout)
	if err := o.sample(ctx, m, tally, begun.Add(o.interval)); err != nil {
		return p, err
	}

	after, err := bpf.ReadCounters(o.at.pinDir)
	if err != nil {
		return p, err
	}

	p.Time = time.Now()
	p.Seconds = p.Time.Sub(begun).Seconds()

	for _, g := range tally.Groups(before, after, p.Seconds, o.rows) {
		p.Classes = append(p.Classes, show(g))
	}

	if note == "" {
		var servicesAfter map[string]status.ServiceCount

		servicesAfter, note = o.services(ctx)
		p.Services = o.busiest(servicesBefore, servicesAfter, time.Since(begun).Seconds())
	}

	p.Note = note
	now, err := m.Missed()
	p.Missed = now - missed

	return p, err
}

// sample adds decisions to the tally until the given time, or until ctx ends.
func (o *top) sample(ctx context.Context, m *bpf.Monitor, tally *busy.Tally, until time.Time) error {
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

// services reads the counts from the agent; note explains why they are unavailable.
func (o *top) services(ctx context.Context) (counts map[string]status.ServiceCount, note string) {
	record, err := status.Read(o.at.runDir)
	if err == nil {
		counts, err = status.Services(ctx, record.Paths)
	}

	if err != nil {
		return nil, fmt.Sprintf("Services are not known: %v", err)
	}

	return counts, ""
}

func (o *top) busiest(before, after map[string]status.ServiceCount, seconds float64) []serviceShown {
	out := []serviceShown{}

	for name, c := range after {
		b := before[name]
		if c.Packets > b.Packets {
			rate := busy.Rate{
				Packets: (c.Packets - b.Packets) / seconds,
				Bytes:   (c.Bytes - b.Bytes) / seconds,
			}
			out = append(out, serviceShown{name, rate})
		}
	}

	slices.SortFunc(out, func(a, b serviceShown) int {
		return cmp.Or(cmp.Compare(b.Rate.Bytes, a.Rate.Bytes), cmp.Compare(a.Service, b.Service))
	})

	return out[:min(o.rows, len(out))]
}
