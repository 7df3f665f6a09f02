package plan

import (
	"fmt"
	"slices"
)

// Rows returns every row that key owns in the cluster as it is, sorted by
// table and ID. No object, or one that needs nothing in OVN, means no rows.
// An error means that the object says something that cannot be planned; the
// owner's rows are then best left as they are. With an *Unserved (by errors.As)
// there are rows too, to be written: parts of the object are not in them.
func Rows(c *Cluster, key Key) ([]Row, error) {
	rowsOf := key.Kind.entry().rows
	if rowsOf == nil {
		return nil, fmt.Errorf("plan %s: unknown kind of owner", key)
	}
	rows, err := rowsOf(c, key)
	if err != nil {
		err = fmt.Errorf("plan %s: %w", key, err)
		if !partial(err) {
			return nil, err
		}
	}
	return sortRows(rows), err
}

func sortKeys(keys []Key) []Key {
	slices.SortFunc(keys, Key.Compare)
	return keys
}
