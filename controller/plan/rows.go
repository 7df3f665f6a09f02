package plan

import (
	"fmt"
	"slices"
)

// Rows returns every row that key owns in the cluster as it is, sorted by
// table and ID. No object, or one that needs nothing in OVN, means no rows.
// An error means that the object says something that cannot be planned; the
// owner's rows are then best left as they are.
func Rows(c *Cluster, key Key) ([]Row, error) {
	var rows []Row
	var err error
	switch key.Kind {
	case KindCluster:
		rows = clusterRows(c.Config)
	case KindNode:
		rows, err = nodeRows(c, key.Name)
	case KindPod:
		rows, err = podRows(c, key)
	case KindService:
		rows = serviceRows(c, key)
	default:
		err = fmt.Errorf("unknown kind of owner")
	}
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", key, err)
	}
	return sortRows(rows), nil
}

func sortKeys(keys []Key) []Key {
	slices.SortFunc(keys, Key.Compare)
	return keys
}
