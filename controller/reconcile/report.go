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
	reasonCannotPlan     = "CannotPlan"     // no rows can be made from the object
	reasonNotServed      = "NotServed"      // parts of the object cannot be served; the others are
	reasonCannotAllocate = "CannotAllocate" // an address, id or subnet is exhausted, taken or invalid
	reasonCannotWrite    = "CannotWrite"    // the database refuses the object's rows
	reasonCannotAnnotate = "CannotAnnotate" // the API server refuses the annotation
	reasonChassisTaken   = "ChassisTaken"   // another node has the same system-id and keeps it
	reasonReallocated    = "Reallocated"    // the annotated values are another object's, so it gets others

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

// isRefused reports whether the API server understood the request and refused it.
func (e *apiError) isRefused() bool {
	return apierrors.IsInvalid(e.err) || apierrors.IsForbidden(e.err) || apierrors.IsBadRequest(e.err)
}

// isTransient reports whether an error comes from a connection or the server's disk, not from the
// key.
func isTransient(err error) bool {
	var api *apiError
	if errors.As(err, &api) {
		return !api.isRefused()
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
	case isTransient(err) || errors.As(err, &missing):
		return ""
	case errors.As(err, &api):
		return reasonCannotAnnotate
	}

	return reasonCannotWrite
}
