package campaign

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	startEvery = 300 * time.Millisecond // pause between two pods
	// startWindow is a period of which the 95th percentile has a bound, too: that of a long campaign
	// does not show that pods were slow for some minutes. About 280 pods start in each period.
	startWindow = 2 * time.Minute
	// startLimit is the time after which a pod has not started.
	startLimit = time.Minute
	// startFactor is how much longer a pod may need than in the same run while the tenants make the same
	// calls for ConfigMaps.
	startFactor = 3
)

// start is one pod of the victim: when it was made, how long it took until its interface worked,
// and the error if it did not.
type start struct {
	at   time.Time
	took time.Duration
	err  error
}

// podStart is a start in the phase of a campaign.
type podStart struct {
	phase string
	start
}

// Phases of the campaign api: nothing happens, the tenants make the calls of an attack for ConfigMaps,
// which no program of the cluster network reads, and the attacks.
const (
	idlePhase     = "idle"
	harmlessPhase = "ConfigMaps"
)

// attackPhase returns the phase of an attack, from 1.
func attackPhase(round int) string { return fmt.Sprint("attack ", round) }

// startsIn returns the starts in the phase.
func startsIn(all []podStart, phase string) (out []start) {
	for _, s := range all {
		if s.phase == phase {
			out = append(out, s.start)
		}
	}

	return out
}

// starts creates pods of the victim, one after another, each with an interface by the plugin.
func (g *ground) starts(ctx context.Context, long time.Duration) (out []start, err error) {
	for end := time.Now().Add(long); time.Now().Before(end) && ctx.Err() == nil; {
		began := time.Now()
		each, cancel := context.WithTimeout(ctx, startLimit)
		p, err := g.newPod(each, fmt.Sprintf("node%d", 1+g.serial.Load()%2))

		cancel()

		out = append(out, start{began, time.Since(began), err})
		if err == nil {
			err = g.delPod(ctx, p)
		} else {
			err = insist(ctx, time.Minute, func() error { return g.leftovers(ctx) })
		}

		if err != nil {
			return out, err
		}

		time.Sleep(startEvery)
	}

	return out, ctx.Err()
}

// millis returns the times in milliseconds. Pods are made one after another, so a slow one hides
// those that would have waited, too: they count with the rest of its time.
func millis(starts []start) (out []int64) {
	for _, s := range starts {
		for took := s.took; took > 0; took -= startEvery {
			out = append(out, took.Milliseconds())
			if took < 2*startEvery {
				break
			}
		}
	}

	return out
}

// slowStarts returns a violation if the 95th percentile of all starts exceeds the bound, one for each
// window whose 95th percentile does, and one for the first pod that did not start. The bound is
// startFactor times the 95th percentile of the starts while the tenants were harmless.
func slowStarts(harmless, under []start) (broken []string) {
	bound := startFactor * quantile(millis(harmless), 0.95)
	above := func(starts []start, when string) {
		if took := quantile(millis(starts), 0.95); took > bound {
			broken = append(broken, fmt.Sprintf("a victim's pods, %s: p95 %d ms, more than %d ms, which is %d times the p95 with the same calls for ConfigMaps", when, took, bound, startFactor))
		}
	}
	above(under, "all")

	for rest := under; len(rest) > 0; {
		first := rest[0].at

		n := slices.IndexFunc(rest, func(s start) bool { return s.at.Sub(first) >= startWindow })
		if n < 0 || rest[len(rest)-1].at.Sub(rest[n].at) < startWindow/2 {
			n = len(rest) // a short last window has too few pods
		}

		above(rest[:n], "from "+first.Format("15:04:05")+" on")
		rest = rest[n:]
	}

	failed := slices.DeleteFunc(slices.Clone(under), func(s start) bool { return s.err == nil })
	if len(failed) > 0 {
		broken = append(broken, fmt.Sprintf("%d of a victim's pods did not start, the first at %s: %v", len(failed), failed[0].at.Format("15:04:05"), failed[0].err))
	}

	return broken
}
