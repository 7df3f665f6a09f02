package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

const (
	// grace is the longest gap between two watches after which the copy still counts as up to
	// date. Short gaps are normal, because the API server ends each watch after some minutes.
	// After a longer gap, the copy is behind until the new watch has been open for grace, in
	// which the missed events arrive.
	grace    = time.Second
	retryMin = 50 * time.Millisecond

	// outage is the shortest outage of the API server in which its database may have been
	// restored, and may then have passed the copy's revision. Most failovers between API servers
	// take less time, and the start of an API server takes more.
	outage = 3 * time.Second
)

// stream is the sequence of a resource's changes, which arrive by one watch after another. It is
// between a reflector of client-go, which keeps the copy, and the API server.
//
// The copy is up to date while a watch is followed, and for grace after its end. If the gap before
// the current watch was longer, or the API server's database was restored, the copy is up to date
// again grace after the watch began (late). A restore needs two more measures:
//
//   - watch (checkHistory) compares the copy's resource version with the API server's, and answers
//     "expired" if the API server is behind, or may have been restored. The reflector then lists
//     again.
//   - rewind removes the resource version from that list request.
type stream struct {
	name     string        // of the resource
	retryMax time.Duration // longest pause after a failed request; jitter may double it
	log      *slog.Logger
	list     func(context.Context, metav1.ListOptions) (runtime.Object, error)
	open     func(context.Context, metav1.ListOptions) (watch.Interface, error)

	mu       sync.Mutex // guards the rest
	serial   int        // number of the watch that was opened last
	follows  bool       // this watch is open, and its initial list, if any, is complete
	changed  time.Time  // when follows changed; zero: follows was never true
	failed   bool       // a failure to watch has been logged
	restored bool       // the API server is at a state before the copy's, and no list has replaced the copy

	// late says that the open watch began more than grace after the end of the one before, or after
	// a restore. So it counts as up to date only after another grace, in which the events arrive
	// that the copy has missed.
	late bool
}

// listAll lists the objects for a reflector.
func (s *stream) listAll(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.rewind(&o)
	return s.list(ctx, o)
}

// watch opens a watch for a reflector. It retries requests that may succeed later. After any other
// error, the reflector lists the objects again.
func (s *stream) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	// A listing watch begins with all objects. The API server refuses it if it has not reached the
	// requested revision.
	listing := o.SendInitialEvents != nil && *o.SendInitialEvents
	if listing {
		s.rewind(&o)
	}

	// Steps is larger than the number of steps to Cap.
	pause := wait.Backoff{Duration: retryMin, Factor: 2, Jitter: 1, Steps: 64, Cap: s.retryMax}
	began := time.Now()
	wasAway := false // a request failed for another reason than its rate

	for {
		from, err := s.open(ctx, o)
		if err == nil && !listing {
			afterOutage := wasAway && time.Since(began) > outage
			if err = s.checkHistory(ctx, o.ResourceVersion, afterOutage); err != nil {
				from.Stop()
			}
		}

		if err == nil {
			return s.follow(from, listing), nil
		}

		s.logFailure(ctx, err)

		if !isTemporary(err) {
			return nil, err
		}

		wasAway = wasAway || !apierrors.IsTooManyRequests(err)

		if !loop.Pause(ctx, pause.Step()) {
			return nil, ctx.Err()
		}
	}
}

// checkHistory checks whether the API server still has the history in which the copy has this
// resource version. If it may have another one, checkHistory returns an error after which a
// reflector lists the objects again. From a version above its own, the API server sends no
// events, not even of new objects, until it has passed that version.
//
// checkHistory must be called after the watch was opened, because the watch then ends if the
// database is restored later.
func (s *stream) checkHistory(ctx context.Context, version string, afterOutage bool) error {
	list, err := s.list(ctx, metav1.ListOptions{Limit: 1}) // without a version: the latest one
	if err != nil {
		return err
	}

	m, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("read version of list of %s: %w", s.name, err)
	}

	now := m.GetResourceVersion()
	if order, err := resourceversion.CompareResourceVersion(now, version); err == nil && order < 0 {
		s.setRestored(version, now)

		return apierrors.NewResourceExpired(fmt.Sprintf("the API server is at version %s, before %s",
			now, version))
	}

	if afterOutage { // a restored database may have passed the copy's version
		return apierrors.NewResourceExpired("the API server may have been restored")
	}

	return nil
}

// setRestored records that the API server has gone back from one resource version to another.
func (s *stream) setRestored(from, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if !s.restored {
		s.log.Warn("the API server was restored to an earlier state: listing again",
			"resource", s.name, "from", from, "to", to)
	}

	s.restored = true
}

// rewind lets the first list after a restore return the API server's present state. A reflector
// requests a list that is at least as new as its copy. After a restore the API server cannot have
// one: it would wait three seconds and answer "too large resource version", and client-go would
// repeat a plain list ten times. The further pages of a list keep their version.
func (s *stream) rewind(o *metav1.ListOptions) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.restored && o.Continue == "" {
		o.ResourceVersion = ""
	}
}

// follow returns a watch that forwards the events of another one, and records when this begins and
// ends. If listing, the watch begins with a list, and counts as followed when that is complete.
func (s *stream) follow(from watch.Interface, listing bool) watch.Interface {
	events := make(chan watch.Event)
	to := watch.NewProxyWatcher(events)

	s.mu.Lock()
	s.serial++
	serial := s.serial
	s.mu.Unlock()

	if !listing {
		s.setFollows(serial, true)
	}

	go func() {
		defer close(events)
		defer from.Stop()
		defer s.setFollows(serial, false)

		for {
			select {
			case <-to.StopChan():
				return
			case e, ok := <-from.ResultChan():
				if !ok {
					return
				}

				if listing && e.Type == watch.Bookmark && endsList(e) {
					listing = false

					s.setFollows(serial, true)
				}

				select {
				case <-to.StopChan():
					return
				case events <- e:
				}
			}
		}
	}()

	return to
}

// endsList reports whether a bookmark ends the initial list of a watch.
func endsList(e watch.Event) bool {
	o, err := meta.Accessor(e.Object)
	return err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// setFollows records whether the watch with the number serial is followed. A reflector may open the
// next watch before the end of the one before is recorded, so only the last watch counts.
func (s *stream) setFollows(serial int, follows bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if serial != s.serial {
		return
	}

	wasRestored := s.restored
	if follows { // after a restore, the reflector has replaced the copy by a list before it watches
		s.restored = false
	}

	if follows == s.follows {
		return
	}

	now := time.Now()
	gap := now.Sub(s.changed)

	s.late = follows && !s.changed.IsZero() && (gap > grace || wasRestored)
	if follows && s.failed {
		s.failed = false
		s.log.Info("watching again", "resource", s.name)
	}

	s.follows, s.changed = follows, now
}

// logFailure logs why the watch cannot be opened, once until it is open again.
func (s *stream) logFailure(ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.failed || ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // expired or gone: the reflector lists the objects again, which is normal
	}

	s.failed = true

	var request *url.Error // its text repeats the whole request
	if errors.As(err, &request) {
		err = request.Err
	}

	s.log.Warn("cannot watch", "resource", s.name, "error", err)
}

// behind returns why the copy may be older than a second, or nil.
func (s *stream) behind(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	since := now.Sub(s.changed)
	switch {
	case s.restored:
		return fmt.Errorf("%s are of a later state than the API server's, which was restored", s.name)
	case s.changed.IsZero():
		return fmt.Errorf("%s are not watched yet", s.name)
	case !s.follows && since > grace:
		return fmt.Errorf("%s have not been watched for %s", s.name, since.Round(time.Second))
	case s.follows && s.late && since < grace:
		return fmt.Errorf("%s are watched again, for less than %s", s.name, grace)
	}

	return nil
}

// isTemporary reports whether the same request may succeed later. An error without an API status
// is not from the API server, which the request did not reach. With the other errors, the API
// server cannot answer now.
func isTemporary(err error) bool {
	var status apierrors.APIStatus

	return !errors.As(err, &status) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
}
