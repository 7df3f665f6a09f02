package ovnd

import (
	"context"
	"fmt"
	"log/slog"
)

// Northd waits for this member's databases, converts each of them to the schema of the installed
// OVN if that is newer, and returns northd's command line. Of all members, one northd works at a
// time: the one beside the leader of the Southbound database, because only clients of the unix
// socket can write.
func (c Central) Northd(ctx context.Context, log *slog.Logger) ([]string, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}

	for _, d := range Databases() {
		if err := c.convert(ctx, d, log); err != nil {
			return nil, err
		}
	}

	northbound, southbound := Databases()[0], Databases()[1]
	argv := []string{
		"ovn-northd",
		"--ovnnb-db=" + c.remotes(northbound),
		"--ovnsb-db=" + c.socket(southbound),
		"--pidfile=" + c.RunDir + "/ovn-northd.pid",
		"--unixctl=" + c.RunDir + "/ovn-northd.ctl",
	}

	return append(append(argv, c.TLS.options()...), logOptions...), nil
}

// convert waits until the database is connected to its cluster, and converts it if its schema is
// older than the installed one.
func (c Central) convert(ctx context.Context, d Database, log *slog.Logger) error {
	socket := c.socket(d)

	err := await(ctx, func() error {
		_, err := run(ctx, "ovsdb-client", "--timeout=30", "wait", socket, d.Name, "connected")
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", d.Name, err)
	}

	version, err := run(ctx, "ovsdb-client", "--timeout=30", "get-schema-version", socket, d.Name)
	if err != nil {
		return fmt.Errorf("compare schema of %s: %w", d.Name, err)
	}

	if isOlder, err := olderThanInstalled(ctx, version, d.schema); err != nil || !isOlder {
		return err
	}

	log.Info("converting database", "database", d.Name)

	_, err = run(ctx, "ovsdb-client", "--timeout=300", "convert", socket, schemaPath(d.schema))
	if err != nil {
		return fmt.Errorf("convert %s: %w", d.Name, err)
	}

	return nil
}
