package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Unserved lists the parts of an object that are not served, and why. Rows returns it together with
// the rows of all other parts, which must be written. The error is for the object's owner to read.
// It disappears when its causes are corrected; until then a retry does not help.
type Unserved struct {
	Parts []string // sorted, each with its cause
}

// Error returns the first few parts.
func (e *Unserved) Error() string {
	const limit = 5
	if more := len(e.Parts) - limit; more > 0 {
		return fmt.Sprintf("not served: %s; and %d more", strings.Join(e.Parts[:limit], "; "), more)
	}

	return "not served: " + strings.Join(e.Parts, "; ")
}

// shortfall collects the parts of one object that are not served, as errors with their causes. It
// ignores further ones beyond maxParts.
type shortfall []error

// maxParts is the highest number of parts that an Unserved names.
const maxParts = 100

// add adds a part with its cause.
func (s *shortfall) add(format string, args ...any) {
	if len(*s) < maxParts {
		*s = append(*s, fmt.Errorf(format, args...))
	}
}

// newUnserved returns an *Unserved with the errors that are not nil, or nil if there are none.
func newUnserved(errs ...error) error {
	e := &Unserved{}

	for _, err := range errs {
		if err != nil {
			e.Parts = append(e.Parts, err.Error())
		}
	}

	if len(e.Parts) == 0 {
		return nil
	}

	slices.Sort(e.Parts)
	e.Parts = slices.Compact(e.Parts)

	return e
}

// partial reports whether the rows returned with the error must be written.
func partial(err error) bool {
	var u *Unserved
	return errors.As(err, &u)
}
