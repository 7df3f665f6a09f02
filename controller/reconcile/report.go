package reconcile

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// Reasons of the events that an object gets when something is wrong with it.
const (
	reasonCannotPlan     = "CannotPlan"     // it says what cannot be planned
	reasonNotServed      = "NotServed"      // parts of what it says cannot be served, the rest is
	reasonCannotAllocate = "CannotAllocate" // an address, id or subnet is exhausted, taken or never to be had
	reasonCannotWrite    = "CannotWrite"    // the database refuses its rows
	reasonCannotAnnotate = "CannotAnnotate" // the API server refuses the annotation
	reasonReallocated    = "Reallocated"    // what it claimed is another's, so it gets something else
)

// report notes an error as an event on the object that it is about.
func (l *Loop) report(k plan.Key, reason string, err error) {
	if obj := l.cluster.Object(k); obj != nil && l.events != nil {
		l.events.Event(obj, corev1.EventTypeWarning, reason, err.Error())
	}
}

// apiError is an error of a call to the API server.
type apiError struct{ err error }

func (e *apiError) Error() string { return e.err.Error() }
func (e *apiError) Unwrap() error { return e.err }

// refused reports whether the API server has understood what it was asked for, and will not.
func (e *apiError) refused() bool {
	return apierrors.IsInvalid(e.err) || apierrors.IsForbidden(e.err) || apierrors.IsBadRequest(e.err)
}

// transient reports whether an error is the fault of a connection, not of the key.
func transient(err error) bool {
	var api *apiError
	if errors.As(err, &api) {
		return !api.refused()
	}
	return errors.Is(err, nb.ErrNotConnected)
}

// reasonOf is the reason of the event that an error of a write is worth, "" if
// none: rows that wait for another owner's are no fault of the object.
func reasonOf(err error) string {
	var api *apiError
	var missing *nb.MissingRowError
	switch {
	case transient(err) || errors.As(err, &missing):
		return ""
	case errors.As(err, &api):
		return reasonCannotAnnotate
	}
	return reasonCannotWrite
}
