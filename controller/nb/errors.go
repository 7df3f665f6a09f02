package nb

import "fmt"

// MissingRowError is the error of a key whose rows refer to a row that is not written yet: the row
// of the table with that plan.Row ID.
type MissingRowError struct{ Table, ID string }

func (e *MissingRowError) Error() string {
	return fmt.Sprintf("refer to %s %q: no such row", e.Table, e.ID)
}
