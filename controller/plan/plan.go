package plan

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Rows returns every row that key owns in the current cluster, sorted by table and ID. It returns
// no rows if the object does not exist or needs none.
//
// With an error that is an *Unserved (errors.As), the rows are valid and must be written: parts of
// the object are missing from them. With any other error, the object cannot be planned, and the
// caller should leave the owner's rows as they are.
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

// Keys returns the keys of all owners in the cluster, sorted. The caller plans them all again. So
// Keys drops the budgets of policies, which would be wrong if the stores have changed without a
// call of Affected.
func (c *Cluster) Keys() []Key {
	c.budgets.forget()

	var keys []Key

	for _, k := range Kinds() {
		switch e := k.entry(); {
		case e.rows == nil:
		case e.keys != nil:
			keys = append(keys, e.keys(c)...)
		default:
			for _, obj := range c.Stores[k].List() {
				if o, ok := obj.(metav1.Object); ok {
					keys = append(keys, Key{k, o.GetNamespace(), o.GetName()})
				}
			}
		}
	}

	return sortKeys(keys)
}

func sortKeys(keys []Key) []Key {
	slices.SortFunc(keys, Key.Compare)
	return keys
}
