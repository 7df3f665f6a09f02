package nb

import "fmt"

// MissingRowError is that of a key whose rows refer to a row that nobody has
// written yet: the row of the table whose plan.Row has that ID.
type MissingRowError struct{ Table, ID string }

func (e *MissingRowError) Error() string {
	return fmt.Sprintf("refer to %s %q: no such row", e.Table, e.ID)
}
