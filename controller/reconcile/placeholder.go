package reconcile

import "context"

// removePlaceholders removes placeholders from port groups when a full sync has ended, unless it is the
// first one of its connection. It returns false if the term is over.
func (w *worker) removePlaceholders(ctx context.Context) bool {
	if !w.tidies || w.firstSync() || len(w.pending) > 0 {
		return true
	}

	w.tidies = false

	if w.term.Hold(ctx) != nil {
		return false
	}

	if err := w.db.RemovePlaceholders(ctx); w.term.loseIfFenced(ctx, err) != nil && ctx.Err() == nil {
		w.log.Warn("placeholders stay in port groups until the next full sync", "error", err)
	}

	return true
}
