package reconcile

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// Reasons of the Events about objects that cannot be served.
const (
	reasonCannotPlan     = "CannotPlan"     // it says what cannot be planned
	reasonNotServed      = "NotServed"      // parts of what it says cannot be served, the rest is
	reasonCannotAllocate = "CannotAllocate" // an address, id or subnet is exhausted, taken or never to be had
	reasonCannotWrite    = "CannotWrite"    // the database refuses its rows
	reasonCannotAnnotate = "CannotAnnotate" // the API server refuses the annotation
	reasonChassisTaken   = "ChassisTaken"   // another node has the same system-id and keeps it
	reasonReallocated    = "Reallocated"    // what it claimed is another's, so it gets something else

	reasonBeyondSize = "BeyondSupportedSize" // the cluster is larger than supported; the node is served
)

// report records an error as an Event on its object.
func (l *Loop) report(k plan.Key, reason string, err error) {
	if obj := l.cluster.Object(k); obj != nil && l.events != nil {
		l.events.Event(obj, corev1.EventTypeWarning, reason, err.Error())
	}
}

// apiError wraps an error of a call to the API server.
type apiError struct{ err error }

func (e *apiError) Error() string { return e.err.Error() }
func (e *apiError) Unwrap() error { return e.err }

// refused reports whether the API server understood the request and refused it.
func (e *apiError) refused() bool {
	return apierrors.IsInvalid(e.err) || apierrors.IsForbidden(e.err) || apierrors.IsBadRequest(e.err)
}

// transient reports whether an error comes from a connection or the server's disk, not from the
// key.
func transient(err error) bool {
	var api *apiError
	if errors.As(err, &api) {
		return !api.refused()
	}

	return errors.Is(err, nb.ErrNotConnected) || errors.Is(err, nb.ErrStorage)
}

// reasonOf returns the reason of the Event for an error of a write. It returns "" for rows that
// wait for another owner's rows: the object is not at fault.
func reasonOf(err error) string {
	var (
		api     *apiError
		missing *nb.MissingRowError
	)
	switch {
	case transient(err) || errors.As(err, &missing):
		return ""
	case errors.As(err, &api):
		return reasonCannotAnnotate
	}

	return reasonCannotWrite
}
