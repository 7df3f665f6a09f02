package reconcile

import (
	"maps"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// buckets has a token bucket for each namespace whose objects have made OVN work in the last seconds.
// Its tokens are units of nb.Allowance. A bucket has unitsAtOnce after a pause. It gets
// unitsPerSecond, but all buckets together get totalPerSecond, in equal parts. So a namespace that
// makes OVN work all the time gets less if others do, too, and does not delay those that do not.
//
// The zero value has full buckets.
type buckets struct {
	used map[string]*rate.Limiter // the buckets that are not full
}

// tokens returns what the namespace may use now. It is negative if the namespace has used more than
// its bucket had.
func (b *buckets) tokens(namespace string) float64 {
	if l := b.used[namespace]; l != nil {
		return l.Tokens()
	}

	return unitsAtOnce
}

// isFull reports whether the namespace's bucket is full.
func (b *buckets) isFull(namespace string) bool {
	return b.used[namespace] == nil
}

// wait returns how long it takes until the namespace's bucket has these tokens, if the namespaces that
// share the total stay the same.
func (b *buckets) wait(namespace string, tokens float64) time.Duration {
	l := b.used[namespace]
	if l == nil {
		return 0
	}

	missing := tokens - l.Tokens()

	return max(0, time.Duration(missing/float64(l.Limit())*float64(time.Second)))
}

// spend takes units out of the namespace's bucket, which may become negative. It then forgets full
// buckets, and divides the total among the others.
func (b *buckets) spend(namespace string, units float64) {
	now := time.Now()

	if units > 0 {
		l := b.used[namespace]
		if l == nil {
			l = rate.NewLimiter(unitsPerSecond, unitsAtOnce)

			if b.used == nil {
				b.used = map[string]*rate.Limiter{}
			}

			b.used[namespace] = l
		}

		for n := int(math.Ceil(units)); n > 0; n -= unitsAtOnce { // a limiter takes no more at once
			l.ReserveN(now, min(n, unitsAtOnce))
		}
	}

	maps.DeleteFunc(b.used, func(_ string, l *rate.Limiter) bool { return l.TokensAt(now) >= unitsAtOnce })

	for _, l := range b.used {
		l.SetLimitAt(now, rate.Limit(min(unitsPerSecond, totalPerSecond/float64(len(b.used)))))
	}
}
