package podnet

import "context"

// Pass is one pass of Run.
func (k *Keeper) Pass(ctx context.Context) error { return k.pass(ctx) }

// Owners returns the number of devices whose owners are cached.
func (m *Meter) Owners() int { return len(m.owners) }
