package ovnd

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Northd waits for this member's databases, converts each to the schema of the installed OVN where
// that is newer, and returns northd's command line. One northd of all members works at a time: the
// one beside the leader of the Southbound database, because only clients of the unix socket write
// there.
func (c Central) Northd(ctx context.Context, log *slog.Logger) ([]string, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}

	for _, d := range Databases() {
		if err := c.convert(ctx, d, log); err != nil {
			return nil, err
		}
	}

	all := Databases()
	argv := []string{
		"ovn-northd",
		"--ovnnb-db=" + c.remotes(all[0]),
		"--ovnsb-db=" + c.socket(all[1]),
		"--pidfile=" + c.RunDir + "/ovn-northd.pid",
		"--unixctl=" + c.RunDir + "/ovn-northd.ctl",
	}

	return append(append(argv, c.TLS.options()...), logging...), nil
}

// convert waits until the database is connected to its cluster, and converts it. Without the
// conversion the data stay in the older schema, which northd supports.
func (c Central) convert(ctx context.Context, d Database, log *slog.Logger) error {
	socket := c.socket(d)

	err := await(ctx, func() error {
		_, err := run(ctx, "ovsdb-client", "--timeout=30", "wait", socket, d.Name, "connected")
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", d.Name, err)
	}

	have, err := run(ctx, "ovsdb-client", "--timeout=30", "get-schema-version", socket, d.Name)
	if err != nil {
		return fmt.Errorf("compare schema of %s: %w", d.Name, err)
	}

	if older, err := olderThanInstalled(ctx, have, d.schema); err != nil || !older {
		return err
	}

	log.Info("converting database", "database", d.Name)

	_, err = run(ctx, "ovsdb-client", "--timeout=300", "convert", socket, schemaPath(d.schema))
	if err != nil {
		return fmt.Errorf("convert %s: %w", d.Name, err)
	}

	return nil
}

// await calls ready until it returns nil or the context ends.
func await(ctx context.Context, ready func() error) error {
	for {
		err := ready()
		if err == nil {
			return nil
		}

		if !loop.Pause(ctx, 200*time.Millisecond) {
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		}
	}
}
