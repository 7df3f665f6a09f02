// Package tokenbucket limits how much work each namespace causes. A namespace that causes work all the
// time slows itself down, and not the namespaces that seldom cause work.
package tokenbucket

import (
	"maps"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// Limits are the limits of a Set, in tokens. The caller decides what a token is.
type Limits struct {
	PerSecond      int // what each bucket gets
	AtOnce         int // what a bucket has after a pause
	TotalPerSecond int // what all buckets together get
}

// Set has a token bucket for each namespace that has spent tokens in the last seconds. All other
// namespaces have full buckets. A bucket gets Limits.PerSecond, but the buckets that are not full
// together get Limits.TotalPerSecond, in equal parts. A Set's methods must not be called concurrently.
type Set struct {
	limits Limits
	used   map[string]*rate.Limiter // the buckets that are not full
}

// New returns a Set with full buckets.
func New(l Limits) *Set { return &Set{limits: l, used: map[string]*rate.Limiter{}} }

// SetRates replaces the rates of the limits: PerSecond and TotalPerSecond.
func (s *Set) SetRates(perSecond, totalPerSecond int) {
	if s.limits.PerSecond != perSecond || s.limits.TotalPerSecond != totalPerSecond {
		s.limits.PerSecond, s.limits.TotalPerSecond = perSecond, totalPerSecond
		s.divide(time.Now())
	}
}

// Tokens returns what the namespace may spend now. It is negative if the namespace has spent more than
// its bucket had.
func (s *Set) Tokens(namespace string) float64 {
	if l := s.used[namespace]; l != nil {
		return l.Tokens()
	}

	return float64(s.limits.AtOnce)
}

// IsFull reports whether the namespace's bucket is full.
func (s *Set) IsFull(namespace string) bool { return s.used[namespace] == nil }

// Wait returns how long it takes until the namespace's bucket has these tokens, if the namespaces that
// share the total stay the same.
func (s *Set) Wait(namespace string, tokens float64) time.Duration {
	l := s.used[namespace]
	if l == nil {
		return 0
	}

	missing := tokens - l.Tokens()

	return max(0, time.Duration(missing/float64(l.Limit())*float64(time.Second)))
}

// Spend takes tokens out of the namespace's bucket, which may become negative. It then forgets full
// buckets, and divides the total among the others.
func (s *Set) Spend(namespace string, tokens float64) {
	now := time.Now()

	if tokens > 0 {
		l := s.used[namespace]
		if l == nil {
			l = rate.NewLimiter(rate.Limit(s.limits.PerSecond), s.limits.AtOnce)
			s.used[namespace] = l
		}

		for n := int(math.Ceil(tokens)); n > 0; n -= s.limits.AtOnce { // a limiter takes no more at once
			l.ReserveN(now, min(n, s.limits.AtOnce))
		}
	}

	maps.DeleteFunc(s.used, func(_ string, l *rate.Limiter) bool {
		return l.TokensAt(now) >= float64(s.limits.AtOnce)
	})

	s.divide(now)
}

// divide divides the total among the buckets that are not full.
func (s *Set) divide(now time.Time) {
	share := float64(s.limits.TotalPerSecond) / float64(max(1, len(s.used)))
	for _, l := range s.used {
		l.SetLimitAt(now, rate.Limit(min(float64(s.limits.PerSecond), share)))
	}
}
