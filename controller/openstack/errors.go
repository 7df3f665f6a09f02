package openstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/gophercloud/gophercloud/v2"
)

// Kind is what an error means for the caller.
type Kind int

// The kinds of errors.
const (
	OK       Kind = iota // no error
	Quota                // the project has no room: wait for the quota
	Conflict             // something is there already or in use: observe and plan again
	Gone                 // an object of the request is not there: observe and plan again
	Busy                 // the service asks to repeat the request later
	Away                 // the service does not answer, or fails inside: repeat the request later
	Refused              // the request or the credentials are wrong: repeating does not help
)

func (k Kind) String() string {
	return [...]string{"ok", "quota", "conflict", "gone", "busy", "away", "refused"}[k]
}

// Error is a request that did not succeed. After Away the request may have been executed.
type Error struct {
	Kind   Kind
	Call   string // "create ports"
	Status int    // HTTP status; 0 if there was no response
	Type   string // Neutron's name for the error, like OverQuota; "" if there is none
	cause  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %v", e.Call, e.Kind, e.cause) }
func (e *Error) Unwrap() error { return e.cause }

// KindOf returns the kind of an error of this package; OK for nil. Other errors, like a context that
// has ended, are Away: nothing is known of the request.
func KindOf(err error) Kind {
	if err == nil {
		return OK
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Away
}

// neutronError is the body of Neutron's error responses.
type neutronError struct {
	NeutronError struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
}

// classify makes an *Error of an error of gophercloud.
func classify(call string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	e := &Error{Kind: Away, Call: call, cause: err}
	var response gophercloud.ErrUnexpectedResponseCode
	var reauth *gophercloud.ErrErrorAfterReauthentication
	var unable *gophercloud.ErrUnableToReauthenticate
	switch {
	case errors.As(err, &reauth):
		return classify(call, reauth.ErrOriginal)
	case errors.As(err, &unable):
		return classify(call, unable.ErrReauth)
	case errors.As(err, &response):
	default:
		return e // no response
	}
	e.Status = response.Actual
	var body neutronError
	if json.Unmarshal(response.Body, &body) == nil && body.NeutronError.Type != "" {
		e.Type = body.NeutronError.Type
		e.cause = fmt.Errorf("%s: %s", e.Type, body.NeutronError.Message)
	} else {
		e.cause = fmt.Errorf("status %d of %s %s", response.Actual, response.Method, response.URL)
	}
	e.Kind = kindOf(e.Status, e.Type)
	return e
}

func kindOf(status int, kind string) Kind {
	switch {
	case kind == "OverQuota" || kind == "SubnetPoolQuotaExceeded" || status == http.StatusRequestEntityTooLarge:
		return Quota
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return Busy
	case status == http.StatusConflict:
		return Conflict
	case status == http.StatusNotFound:
		return Gone
	case status >= http.StatusInternalServerError || status == http.StatusRequestTimeout:
		return Away
	}
	return Refused
}
