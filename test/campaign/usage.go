package campaign

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/procfs"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

const (
	// usageFor is how long CPU time is measured.
	usageFor = 30 * time.Second
	// restFor is how long after an attack the programs must be at rest again.
	restFor = time.Minute
	// restFactor is how much more CPU time they may need then than before the attack.
	restFactor = 1.5
	// growth is how much more memory they may have after the same attack again.
	growth = 1.05
)

// usage is what some processes use.
type usage struct {
	cpu    time.Duration // since they were started, or during long
	memory uint64        // resident, in bytes
	long   time.Duration // that was measured, or 0
}

func (u usage) String() string {
	return fmt.Sprintf("%.1f %% of a CPU, %d MB", 100*u.share(), u.memory>>20)
}

// share returns the CPU time as a share of one CPU.
func (u usage) share() float64 { return u.cpu.Seconds() / max(u.long.Seconds(), 1e-9) }

// program is a part of the cluster network that has the same bounds: its name in reports, and the
// names of its processes' logs.
type program struct {
	name      string
	processes []string
}

func (g *ground) programs() []program {
	controller, agents := program{"controller", []string{"controller"}}, program{name: "agents"}
	central := program{"OVN's databases and northd", []string{"central-ovnnb_db", "central-ovnsb_db", "central-ovn-northd"}}
	nodes := program{name: "ovn-controllers and Open vSwitch"}

	for _, n := range g.Nodes() {
		agents.processes = append(agents.processes, "agent-"+n.Name)
		nodes.processes = append(nodes.processes, n.Name+"-ovn-controller", n.Name+"-ovs-vswitchd", n.Name+"-db")
	}

	return []program{controller, agents, central, nodes}
}

// used returns the usage of each program since its processes were started. The daemons of OVN and
// Open vSwitch are children of their monitors, in the same process group.
func (g *ground) used() (map[string]usage, error) {
	of := map[int]string{} // programs, by process group

	for _, p := range g.programs() {
		for _, name := range p.processes {
			record, err := g.Process(name)
			if err != nil {
				return nil, err
			}

			of[record.PID] = p.name
		}
	}

	processes, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("read the processes: %w", err)
	}

	out := map[string]usage{}

	for _, p := range processes {
		stat, err := p.Stat()
		if err != nil {
			continue // it has ended
		}

		if name, ok := of[stat.PGRP]; ok {
			u := out[name]
			u.cpu += time.Duration(stat.CPUTime() * float64(time.Second))
			u.memory += uint64(stat.ResidentMemory())
			out[name] = u
		}
	}

	return out, nil
}

// usage measures the CPU time of each program while do runs, and its memory at the end.
func (g *ground) usage(do func() error) (map[string]usage, error) {
	before, err := g.used()
	if err != nil {
		return nil, err
	}

	began := time.Now()

	if err := do(); err != nil {
		return nil, err
	}

	long := time.Since(began)

	out, err := g.used()
	for name, u := range out {
		out[name] = usage{u.cpu - before[name].cpu, u.memory, long}
	}

	return out, err
}

// usageAtRest measures for usageFor.
func (g *ground) usageAtRest(ctx context.Context) (map[string]usage, error) {
	return g.usage(func() error {
		loop.Pause(ctx, usageFor)
		return ctx.Err()
	})
}

// usages adds the usage of each program before the first attack, during each one, and after it. After
// an attack, a program may need restFactor of its CPU time before, and after the second one growth of
// its memory after the first.
func (r *Report) usages(programs []string, idle map[string]usage, during, after []map[string]usage) {
	for _, p := range programs {
		r.Figures = append(r.Figures, Figure{p + " before the attack", idle[p].String()})

		for i, u := range after {
			r.Figures = append(r.Figures,
				Figure{fmt.Sprintf("%s during attack %d", p, i+1), during[i][p].String()},
				Figure{fmt.Sprintf("%s after attack %d", p, i+1), u[p].String()})

			if u[p].share() > restFactor*idle[p].share() {
				r.Broken = append(r.Broken, fmt.Sprintf("%s after attack %d: %s, more than %g times the CPU time before (%s)",
					p, i+1, u[p], restFactor, idle[p]))
			}
		}

		if first, last := after[0][p], after[len(after)-1][p]; float64(last.memory) > growth*float64(first.memory) {
			r.Broken = append(r.Broken, fmt.Sprintf("%s after attack %d: %s, more than %g times the memory after attack 1 (%s)",
				p, len(after), last, growth, first))
		}
	}
}
