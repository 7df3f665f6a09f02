package openstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gophercloud/gophercloud/v2"
)

// Kind is the reaction that an error asks of the caller. The zero Kind, OK, is success.
type Kind int

// The kinds of errors.
const (
	OK       Kind = iota // no error
	Quota                // the project or its subnet pool has no room: wait for it
	Conflict             // something is there already or in use: observe and plan again
	Gone                 // an object of the request is not there: observe and plan again
	Busy                 // the service asks to repeat the request later
	Away                 // the service does not answer, or fails inside: repeat the request later
	Refused              // the request or the credentials are wrong: repeating does not help
)

func (k Kind) String() string {
	return [...]string{"ok", "quota", "conflict", "gone", "busy", "away", "refused"}[k]
}

// Error is the error of a request. After an error of kind Away, the request may have been executed.
type Error struct {
	Kind   Kind
	Call   string // such as "create ports"
	Status int    // HTTP status; 0 if there was no response
	Type   string // Neutron's name for the error, like OverQuota; "" if there is none
	// RetryAfter is the time that the service asks to wait before the next request; 0 if it does
	// not.
	RetryAfter time.Duration

	cause error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %v", e.Call, e.Kind, e.cause) }
func (e *Error) Unwrap() error { return e.cause }

// KindOf returns the kind of an error of this package; OK for nil. Other errors, like a context
// that has ended, are Away: nothing is known of the request.
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

// classify converts an error of gophercloud into an *Error. It returns context.Canceled as it is:
// the caller has ended the request.
func classify(call string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}

	e := &Error{Kind: Away, Call: call, cause: err}

	var (
		response gophercloud.ErrUnexpectedResponseCode
		reauth   *gophercloud.ErrErrorAfterReauthentication
		unable   *gophercloud.ErrUnableToReauthenticate
	)
	switch {
	case errors.As(err, &reauth):
		return classify(call, reauth.ErrOriginal)
	case errors.As(err, &unable):
		return classify(call, unable.ErrReauth)
	case errors.As(err, &response):
	default:
		return e // no response
	}

	e.Status, e.RetryAfter = response.Actual, retryAfter(response.ResponseHeader, time.Now())

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

// Types of Neutron's errors.
const (
	TypeSubnetAllocation = "SubnetAllocationError"             // the subnet pool has no prefix left
	TypeParentPortInUse  = "ParentPortInUse"                   // the port cannot be a trunk's parent now
	TypeTrunkInUse       = "TrunkInUse"                        // the trunk's port is in use
	TypeTrunkDisabled    = "TrunkDisabled"                     // the trunk's administrative state is down
	TypeTrunkInError     = "TrunkInErrorState"                 // Neutron could not realize the trunk
	TypeSubportMTU       = "SubPortMtuGreaterThanTrunkPortMtu" // the trunk's network has a smaller MTU
)

// kinds has the kinds of those types of errors whose kind does not follow from the HTTP status.
// Neutron answers 500 if a subnet pool is exhausted, and 409 to requests for trunks that cannot
// succeed, not even after another observation.
var kinds = map[string]Kind{
	"OverQuota":               Quota,
	"SubnetPoolQuotaExceeded": Quota,
	TypeSubnetAllocation:      Quota,

	TypeParentPortInUse: Refused,
	TypeTrunkInUse:      Refused,
	TypeTrunkDisabled:   Refused,
	TypeTrunkInError:    Refused,
	TypeSubportMTU:      Refused,
}

// kindOf returns the kind of a response with that HTTP status, and with that type in its body.
func kindOf(status int, name string) Kind {
	if kind, exists := kinds[name]; exists {
		return kind
	}

	switch {
	case status == http.StatusRequestEntityTooLarge:
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

// retryAfter returns the time to wait that a response asks for by its header Retry-After, which is
// a number of seconds or a date (RFC 9110). It returns 0 if the header is missing or malformed.
func retryAfter(header http.Header, now time.Time) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}

	if date, err := http.ParseTime(text); err == nil {
		return max(0, date.Sub(now))
	}

	return 0
}
