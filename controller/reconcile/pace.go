package reconcile

import "time"

// calmAfter is how long at most a batch must have waited before the loop counts as calm.
const calmAfter = 2 * time.Second

// pace calls a function when more than a batch of keys begins to wait, and when that ends. The zero
// value calls no function.
type pace struct {
	tell func(busy bool)
	calm bool      // as told last
	busy time.Time // when more than a batch waited last
}

// begin is called by a new leader, which has all keys to reconcile.
func (p *pace) begin() { p.note(batchSize+1, time.Now()) }

// note records how many keys wait.
func (p *pace) note(waiting int, now time.Time) {
	if waiting > batchSize {
		p.busy = now
	}
	if calm := now.Sub(p.busy) > calmAfter; calm != p.calm && p.tell != nil {
		p.calm = calm
		p.tell(!calm)
	}
}
