package lab

import (
	"context"
	"slices"
)

// StartAgentFrom is StartAgent with the program of another directory than the
// lab's, as it is after an upgrade, and with flags that may change its layout.
func (l *Lab) StartAgentFrom(ctx context.Context, dir string, i int, flags ...string) error {
	other := *l
	other.opts.BinDir = dir
	other.opts.AgentArgs = slices.Concat(l.opts.AgentArgs, flags)
	return other.StartAgent(ctx, i)
}
