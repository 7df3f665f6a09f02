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
	var rows []Row
	var err error
	switch key.Kind {
	case KindCluster:
		rows = append(clusterRows(c), meterRows(c)...)
	case KindServiceCIDR:
		err = checkServiceCIDR(c, key.Name)
	case KindNode:
		rows, err = nodeRows(c, key.Name)
	case KindSelector:
		rows = selectorRows(c, key)
	case KindPolicy:
		rows, err = policyRows(c, key)
	case KindPod:
		rows, err = podRows(c, key)
	case KindService:
		rows, err = serviceRows(c, key)
	default:
		err = fmt.Errorf("unknown kind of owner")
	}
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
