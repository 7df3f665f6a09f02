package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Unserved says what an object asks for that it does not get, and why. The rows
// that Rows returns with it are all the rest: they are to be written, and the
// error is for the object's owner to read. It goes when what is wrong is
// corrected, wherever that is; until then there is nothing to try again.
type Unserved struct {
	Parts []string // sorted, each a sentence's worth, with its cause
}

// Error names the first few of the parts.
func (e *Unserved) Error() string {
	const most = 5
	if more := len(e.Parts) - most; more > 0 {
		return fmt.Sprintf("not served: %s; and %d more", strings.Join(e.Parts[:most], "; "), more)
	}
	return "not served: " + strings.Join(e.Parts, "; ")
}

// shortfall collects the errors of one object.
type shortfall []error

// maxParts is how many parts an Unserved names: nobody reads more.
const maxParts = 100

func (s *shortfall) add(format string, args ...any) {
	if len(*s) < maxParts {
		*s = append(*s, fmt.Errorf(format, args...))
	}
}

// unserved returns the errors as one, nil if all are nil.
func unserved(errs ...error) error {
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

// partial says whether rows that came with the error are to be written.
func partial(err error) bool {
	var u *Unserved
	return errors.As(err, &u)
}
