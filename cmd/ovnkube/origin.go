package main

import (
	"errors"
	"fmt"
	"strings"
)

// located adds to each error the sources of the settings that it is about, which may not be obvious
// to the reader.
func (s *settings) located(err error) error {
	if err == nil {
		return nil
	}
	if list, is := err.(interface{ Unwrap() []error }); is {
		var out []error
		for _, e := range list.Unwrap() {
			out = append(out, s.located(e))
		}
		return errors.Join(out...)
	}
	var from []string
	for _, o := range s.about(err.Error()) {
		from = append(from, o.Flag+" is from "+s.Origin(o.Flag).Where)
	}
	if len(from) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(from, ", "))
}
