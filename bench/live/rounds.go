package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Rounds measures each backend in turn and back again, for this number of rounds, and always
// returns to the first one. switchTo must return only when the backend carries the traffic.
func Rounds(ctx context.Context, o Options, backends []string, rounds int, switchTo func(context.Context, string) error) ([]Row, error) {
	return inRounds(ctx, func(ctx context.Context) ([]Row, error) { return Measure(ctx, o) }, backends, rounds, switchTo)
}

func inRounds(ctx context.Context, measure func(context.Context) ([]Row, error), backends []string, rounds int, switchTo func(context.Context, string) error) (rows []Row, err error) {
	if len(backends) == 0 || rounds < 1 {
		return nil, errors.New("measure: no backend, or no round")
	}
	current := backends[0]
	defer func() {
		if current == backends[0] {
			return
		}
		// Also when ctx has ended: the node must be restored.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		if back := switchTo(ctx, backends[0]); back != nil {
			err = errors.Join(err, fmt.Errorf("switch back to %q: %w", backends[0], back))
		}
	}()
	order := slices.Clone(backends)
	for range rounds {
		for _, b := range order {
			if b != current {
				current = b // it may be partly active from here on
				if err := switchTo(ctx, b); err != nil {
					return rows, fmt.Errorf("switch to %q: %w", b, err)
				}
			}
			got, err := measure(ctx)
			if err != nil {
				return rows, fmt.Errorf("backend %q: %w", b, err)
			}
			for i := range got {
				got[i].Backend = b
			}
			rows = append(rows, got...)
		}
		slices.Reverse(order)
	}
	return rows, nil
}
