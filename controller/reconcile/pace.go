package reconcile

import "time"

// calmAfter is how long no more than a batch may have waited before the loop is calm.
const calmAfter = 2 * time.Second

// pace tells when there is more to do than a trickle of changes, and when no longer. The
// zero value calls no function.
type pace struct {
	tell func(busy bool)
	calm bool      // as told last
	busy time.Time // when more than a batch waited last
}

// begin is for a leader, which has everything to do.
func (p *pace) begin() { p.note(batchSize+1, time.Now()) }

// note is told how many keys wait.
func (p *pace) note(waiting int, now time.Time) {
	if waiting > batchSize {
		p.busy = now
	}
	if calm := now.Sub(p.busy) > calmAfter; calm != p.calm && p.tell != nil {
		p.calm = calm
		p.tell(!calm)
	}
}
