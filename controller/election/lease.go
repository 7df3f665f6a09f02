package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// BootClock returns the time since the machine's boot. Unlike time.Now's monotonic clock it
// continues while the machine is suspended. It cannot be set.
func BootClock() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // Linux 2.6.39 has it
	}

	return time.Duration(now.Nano())
}

var errNotHolder = errors.New("the lease is another replica's")

// lease is the lock of client-go's elector. It also records when this replica last renewed the
// Lease, so that Term.Hold can decide whether to write. The elector alone is not enough: a process
// that was stopped renews before it looks at a clock, and gives up only after it has failed for two
// thirds of the lease.
type lease struct {
	resourcelock.Interface
	clock    func() time.Duration
	duration time.Duration

	mu          sync.Mutex    // guards all below
	lost        func(error)   // see onLoss
	held        bool          // this replica is the holder, as far as it knows
	holder      string        // in the record that was read or written last; "": released
	transitions int           // leaderTransitions of the record that this replica wrote last
	sent        time.Duration // time of the clock when this write was sent
	renewed     chan struct{} // closed at the next renewal
}

func newLease(lock resourcelock.Interface, duration time.Duration, clock func() time.Duration) *lease {
	return &lease{
		Interface: lock,
		clock:     clock,
		duration:  duration,
		lost:      func(error) {},
		renewed:   make(chan struct{}),
	}
}

// onLoss registers f. It is called when a record that was read shows that another replica holds the
// lease, or has held it since this replica wrote it.
func (l *lease) onLoss(f func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.lost = f
}

// Get implements resourcelock.Interface.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.recordSeen(record)
	}

	return record, raw, err
}

// recordSeen checks whether a record that was read shows that this replica has lost the lease. If
// the holder has changed twice since this replica's last write, the record has its identity again,
// but more transitions.
func (l *lease) recordSeen(record *resourcelock.LeaderElectionRecord) {
	l.mu.Lock()
	l.holder = record.HolderIdentity
	isLost := l.held && (record.HolderIdentity != l.Identity() || record.LeaderTransitions != l.transitions)
	notify := l.lost

	if isLost {
		l.held = false
	}
	l.mu.Unlock()

	if isLost {
		notify(fmt.Errorf("%w: %q has it", errNotHolder, record.HolderIdentity))
	}
}

// Create implements resourcelock.Interface.
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	sent := l.clock()

	err := l.Interface.Create(ctx, record)
	if err == nil {
		l.recordWritten(record, sent)
	}

	return err
}

// Update implements resourcelock.Interface. It does not release a lease that another replica holds
// by now: client-go 0.35 reads the record again before the release, and does not check its holder.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	holder := l.holder
	l.mu.Unlock()

	if record.HolderIdentity == "" && holder != l.Identity() {
		return errNotHolder
	}

	sent := l.clock()

	err := l.Interface.Update(ctx, record)
	if err == nil {
		l.recordWritten(record, sent)
	}

	return err
}

// recordWritten records a write that the API server has accepted. The lease runs from the time at
// which the write was sent, because the time of its arrival is unknown.
func (l *lease) recordWritten(record resourcelock.LeaderElectionRecord, sent time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.holder, l.transitions, l.sent = record.HolderIdentity, record.LeaderTransitions, sent
	l.held = record.HolderIdentity == l.Identity()
	close(l.renewed)
	l.renewed = make(chan struct{})
}

// grace returns whether and how long this replica may write:
//
//   - left is how long it may still send writes. At 0 or less, it must wait for a renewal. This
//     time ends after two thirds of the lease, so a request in flight has the last third to arrive.
//   - renewed is closed at the next renewal.
//   - over means that another replica may hold the lease: it has expired, or is lost.
func (l *lease) grace() (left time.Duration, renewed <-chan struct{}, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	age := l.clock() - l.sent

	return l.duration*2/3 - age, l.renewed, !l.held || age >= l.duration
}
