package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// Options configure a campaign.
type Options struct {
	Lab  lab.Options
	For  time.Duration // it ends after the step during which this time has passed
	Seed uint64
	Only *regexp.Regexp // of the kinds of steps; nil: all
	Log  io.Writer
	// Heal is the time limit for recovery after a fault; 0 means a minute.
	Heal time.Duration
	// First ends the campaign at the first violation. Otherwise everything is restarted after a
	// violation, so that one defect does not hide others.
	First bool
}

// injected is a past fault.
type injected struct {
	fault
	what string
	heal time.Duration
}

// Faults injects faults of processes, disks, servers, links and addresses, one after another, in
// rounds of all kinds. After each, all paths must work within Options.Heal, and pods created
// meanwhile must work. Paths of the host must not lose packets, except by faults of its own link.
func Faults(ctx context.Context, o Options) (report *Report, err error) {
	o.Lab.Disk = "384m"
	o.Lab.ControllerArgs = []string{"--ha-election-lease-duration=5"}
	g, err := newGround(ctx, o.Lab, o.Log)

	report = newReport(faultsName(), o)
	defer func() { err = errors.Join(err, g.down(err != nil || len(report.Broken) > 0)) }()

	if err != nil {
		return report, err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	f := &faults{ground: g, heal: cmp.Or(o.Heal, time.Minute)}
	if err := f.start(ctx, o); err != nil {
		return report, err
	}

	var done []injected

	kinds := slices.DeleteFunc(kinds(), func(k fault) bool { return o.Only != nil && !o.Only.MatchString(k.kind) })
	slices.SortFunc(kinds, func(a, b fault) int { return strings.Compare(a.kind, b.kind) })

	r := rand.New(rand.NewPCG(o.Seed, 0))

	order := r.Perm(len(kinds))
	for end := time.Now().Add(o.For); time.Now().Before(end) && ctx.Err() == nil; {
		if len(done)%len(kinds) == 0 {
			order = r.Perm(len(kinds))
		}

		k := kinds[order[len(done)%len(kinds)]]
		step, broken := f.step(ctx, k, int64(len(done)+1), r)

		done = append(done, step)
		for _, b := range broken {
			g.say("BROKEN by fault %d, %s: %s", len(done), k.kind, b)
			report.Broken = append(report.Broken, fmt.Sprintf("fault %d, %s (%s): %s", len(done), k.kind, step.what, b))
		}

		if len(broken) > 0 && (o.First || !f.recover(ctx)) {
			report.Broken = append(report.Broken, "the campaign ends early")
			break
		}
	}

	f.account(report, done)

	return report, ctx.Err()
}

// faultsName returns "faults", or "kernel-faults" in a VM, where figures are not comparable.
func faultsName() string {
	if os.Getenv(vmEnv) != "" {
		return "kernel-faults"
	}

	return "faults"
}

// start starts the second controller, the proxies and the probes.
func (f *faults) start(ctx context.Context, o Options) (err error) {
	if f.proxies, err = startProxies(ctx, f.Lab); err != nil {
		return err
	}

	if err := f.StartStandby(ctx, o.Lab.ControllerArgs...); err != nil {
		return err
	}

	if err := f.ready(ctx); err != nil {
		return err
	}

	return f.startProbes(ctx, f.paths(), f.heal)
}

// ready waits until agents and controllers are ready.
func (f *faults) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, f.heal, fmt.Errorf("not ready after %s", f.heal))
	defer cancel()

	return errors.Join(f.AwaitController(ctx), f.AwaitStandby(ctx), f.AwaitAgent(ctx, 1), f.AwaitAgent(ctx, 2))
}

// step injects one fault, ends it, and returns the violations after it. Meanwhile it creates pods
// on both nodes.
func (f *faults) step(ctx context.Context, k fault, number int64, r *rand.Rand) (injected, []string) {
	done := injected{fault: k}

	hold := time.Duration(0)
	if k.longest > 0 {
		hold = k.longest/10 + time.Duration(r.Int64N(int64(k.longest)*9/10))
	}

	f.bucket.Store(number)
	what, end, err := k.inject(ctx, f, r)
	done.what = what
	f.say("fault %d: %s (%s) for %s", number, k.kind, what, hold.Round(time.Millisecond))

	if err != nil {
		return done, []string{fmt.Sprintf("cannot inject it: %v", err)}
	}

	enough, made := make(chan struct{}), make(chan error, 2)
	for i := range cap(made) {
		go func() { made <- f.churn(ctx, enough, f.Node(i+1).Name) }()
	}

	time.Sleep(hold)

	if end != nil {
		if err := end(); err != nil {
			close(enough)
			return done, []string{fmt.Sprintf("cannot end it: %v", err), fmt.Sprint(errors.Join(<-made, <-made))}
		}
	}

	ended := time.Now()

	var broken []string

	heal, failing := f.awaitProbes(ctx, ended, f.heal)

	done.heal = heal
	if len(failing) > 0 {
		broken = append(broken, fmt.Sprintf("not answered %s later: %s", f.heal, strings.Join(failing, "; ")))
	}

	f.bucket.Store(0)
	time.Sleep(k.after - min(k.after, time.Since(ended)))
	close(enough)

	if err := errors.Join(<-made, <-made); err != nil {
		broken = append(broken, fmt.Sprintf("pods made meanwhile: %v", err))
	}

	if err := f.ready(ctx); err != nil {
		broken = append(broken, err.Error())
	}

	for _, name := range []string{"a", "b", "c"} {
		if err := insist(ctx, 20*time.Second, func() error { return f.agreed(ctx, f.pods[name]) }); err != nil {
			broken = append(broken, fmt.Sprintf("pod %s: %v", name, err))
		}
	}

	if err := insist(ctx, 20*time.Second, func() error { return f.leftovers(ctx) }); err != nil {
		broken = append(broken, err.Error())
	}

	return done, broken
}

// churn creates pods on a node, one after another, at least one, until enough is closed.
func (f *faults) churn(ctx context.Context, enough <-chan struct{}, node string) error {
	for {
		if err := f.podWorks(ctx, node); err != nil {
			return err
		}

		select {
		case <-enough:
			return nil
		default:
		}
	}
}

// recover restarts processes, so that one defect does not hide others. It reports whether all paths
// work again.
func (f *faults) recover(ctx context.Context) bool {
	for _, name := range []string{"node1-ovs-vswitchd", "node2-ovs-vswitchd", "node1-ovn-controller", "node2-ovn-controller", "controller", "standby", "agent-node1", "agent-node2"} {
		again, err := f.Kill(name)
		if err == nil {
			err = again()
		}

		if err != nil {
			f.say("restart %s: %v", name, err)
			return false
		}
	}

	_, failing := f.awaitProbes(ctx, time.Now(), f.heal)
	f.say("everything restarted; still not answered: %v", failing)

	return len(failing) == 0 && f.ready(ctx) == nil
}

// account adds to the report the losses of each path by kind of fault, and forbidden losses of the
// host.
func (f *faults) account(report *Report, done []injected) {
	time.Sleep(lostAfter) // packets in flight

	for i, step := range append([]injected{{}}, done...) {
		lost := map[string]Count{}

		for _, p := range f.probes {
			c := p.settle(int64(i))
			total := lost[p.path.Name]
			total.add(c)

			lost[p.path.Name] = total
			if p.path.Host && !step.own && c.Lost > 0 {
				report.Broken = append(report.Broken, fmt.Sprintf("fault %d, %s (%s): %s lost %d of %d, %s", i, step.kind, step.what, p, c.Lost, c.Sent, c.when()))
			}
		}

		if i > 0 {
			report.addStep(step.kind, step.heal, lost)
		} else {
			report.addStep("none", 0, lost)
		}
	}
}
