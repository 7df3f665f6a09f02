package ovnd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
)

// olderThanInstalled reports whether a database's schema version is older than that of the installed
// schema. A database of a newer version must stay as it is: conversion would drop its columns, while
// another member or the next update needs them.
func olderThanInstalled(ctx context.Context, have []byte, schema string) (bool, error) {
	want, err := run(ctx, "ovsdb-tool", "schema-version", schemaPath(schema))
	if err != nil {
		return false, fmt.Errorf("compare schema versions: %w", err)
	}

	have, want = bytes.TrimSpace(have), bytes.TrimSpace(want)
	_, err = run(ctx, "ovsdb-tool", "compare-versions", string(have), "<", string(want))

	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 { // the comparison is false
		return false, nil
	}

	if err != nil {
		return false, fmt.Errorf("compare schema versions: %w", err)
	}

	return true, nil
}
