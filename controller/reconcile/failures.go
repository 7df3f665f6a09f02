package reconcile

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// repeatEvery is the interval at which the same error of an object is reported again. The API
// server forgets Events after an hour.
const repeatEvery = 30 * time.Minute

// failures holds the owners whose last reconciliation failed.
type failures struct {
	mu   sync.Mutex // guards keys
	keys map[plan.Key]failure
}

type failure struct {
	text     string    // of the error
	reported time.Time // when set last returned true
}

// set records the owner's error and reports whether it must be reported: it is new, or was last
// reported repeatEvery ago.
func (f *failures) set(k plan.Key, text string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	if old, ok := f.keys[k]; ok && old.text == text && now.Sub(old.reported) < repeatEvery {
		return false
	}

	f.keys[k] = failure{text, now}

	return true
}

// clear records the owner's success and reports whether it had failed before.
func (f *failures) clear(k plan.Key) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	_, failed := f.keys[k]
	delete(f.keys, k)

	return failed
}

// reset forgets all failures.
func (f *failures) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()

	clear(f.keys)
}

// count returns the number of failing owners by kind.
func (f *failures) count() map[plan.Kind]int {
	f.mu.Lock()
	defer f.mu.Unlock()

	n := map[plan.Kind]int{}
	for _, k := range plan.OwnerKinds() {
		n[k] = 0 // a series that is 0 is shown, too
	}

	for k := range f.keys {
		n[k.Kind]++
	}

	return n
}

// owners returns the failing owners, sorted.
func (f *failures) owners() []plan.Key {
	f.mu.Lock()
	defer f.mu.Unlock()

	return slices.SortedFunc(maps.Keys(f.keys), plan.Key.Compare)
}

// list returns up to n failing owners with their errors, sorted by owner, and the total number.
func (f *failures) list(n int) (lines []string, total int) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, k := range slices.SortedFunc(maps.Keys(f.keys), plan.Key.Compare) {
		if len(lines) == n {
			break
		}

		lines = append(lines, k.String()+": "+f.keys[k].text)
	}

	return lines, len(f.keys)
}
