package ovnd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
)

// olderThanInstalled reports whether a version of a database's schema is older than the installed
// schema, whose file name is schema. A newer database must not be converted: that would drop
// columns which other members, or this member after its update, need.
func olderThanInstalled(ctx context.Context, version []byte, schema string) (bool, error) {
	installed, err := run(ctx, "ovsdb-tool", "schema-version", schemaPath(schema))
	if err != nil {
		return false, fmt.Errorf("compare schema versions: %w", err)
	}

	_, err = run(ctx, "ovsdb-tool", "compare-versions",
		string(bytes.TrimSpace(version)), "<", string(bytes.TrimSpace(installed)))

	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 { // the comparison is false
		return false, nil
	}

	if err != nil {
		return false, fmt.Errorf("compare schema versions: %w", err)
	}

	return true, nil
}
