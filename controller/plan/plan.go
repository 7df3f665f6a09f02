package plan

import (
	"fmt"
	"slices"
)

// Rows returns every row that key owns in the current cluster, sorted by table and ID. It returns
// no rows if the object does not exist or needs none. On an error the object cannot be planned, and
// the caller should leave the owner's rows as they are. The exception is *Unserved (by errors.As):
// the rows are then valid and must be written, and parts of the object are missing from them.
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
