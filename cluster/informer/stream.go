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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// grace is how long no watch may be open, as when the API server ends one for its age,
	// and how long what came meanwhile may take to be told.
	grace    = time.Second
	retryMin = 50 * time.Millisecond
)

// stream is a resource's changes as the API server tells them, by one watch after another.
type stream struct {
	name     string
	retryMax time.Duration
	log      *slog.Logger
	open     func(context.Context, metav1.ListOptions) (watch.Interface, error)

	mu      sync.Mutex // guards the rest
	serial  int        // of the watch that was opened last
	follows bool       // it is open, and has told what was there before
	changed time.Time  // since when that is so, or is not; zero: it has never been
	late    bool       // before that, nothing was told for longer than grace
	failed  bool       // that has been logged
}

// watch opens a watch, however often that takes. What trying again does not help is returned:
// a reflector lists everything then.
func (s *stream) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	pause := wait.Backoff{Duration: retryMin, Factor: 2, Jitter: 1, Steps: 64, Cap: s.retryMax}
	for {
		from, err := s.open(ctx, o)
		if err == nil {
			return s.follow(from, o.SendInitialEvents != nil && *o.SendInitialEvents), nil
		}
		s.fail(ctx, err)
		if !temporary(err) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause.Step()):
		}
	}
}

// follow passes a watch's events on. If it begins with all objects, it follows when these
// have come.
func (s *stream) follow(from watch.Interface, listing bool) watch.Interface {
	events := make(chan watch.Event)
	to := watch.NewProxyWatcher(events)
	s.mu.Lock()
	s.serial++
	serial := s.serial
	s.mu.Unlock()
	if !listing {
		s.set(serial, true)
	}
	go func() {
		defer close(events)
		defer from.Stop()
		defer s.set(serial, false)
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
					s.set(serial, true)
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

func endsList(e watch.Event) bool {
	o, err := meta.Accessor(e.Object)
	return err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// set notes that the watch follows, or no longer does, unless there is a later one.
func (s *stream) set(serial int, follows bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if serial != s.serial || follows == s.follows {
		return
	}
	now := time.Now()
	lost := now.Sub(s.changed)
	s.late = follows && !s.changed.IsZero() && lost > grace
	if follows && s.failed {
		s.failed = false
		s.log.Info("watching again", "resource", s.name)
	}
	s.follows, s.changed = follows, now
}

// fail logs why nothing is watched, once.
func (s *stream) fail(ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed || ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // expired: the reflector lists everything, as it must now and then
	}
	s.failed = true
	var request *url.Error // says again what is watched, at length
	if errors.As(err, &request) {
		err = request.Err
	}
	s.log.Warn("cannot watch", "resource", s.name, "err", err)
}

func (s *stream) behind(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := now.Sub(s.changed)
	switch {
	case s.changed.IsZero():
		return fmt.Errorf("%s are not watched yet", s.name)
	case !s.follows && since > grace:
		return fmt.Errorf("%s have not been watched for %s", s.name, since.Round(time.Second))
	case s.follows && s.late && since < grace:
		return fmt.Errorf("%s are watched again, for less than %s", s.name, grace)
	}
	return nil
}

// temporary reports whether the same request may be granted later: it did not reach the API
// server, or that cannot answer now.
func temporary(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
}
