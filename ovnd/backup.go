package ovnd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
)

// backupLayout is the layout of the time, in UTC, that is the name of a backup's directory.
const backupLayout = "2006-01-02T15-04-05Z"

// unfinishedSuffix ends the name of a backup's directory until the backup is complete.
const unfinishedSuffix = ".new"

// abandonedAge is the age at which an unfinished backup is no longer in progress. It is longer than
// ovsdb-client's timeout for both databases.
const abandonedAge = 10 * time.Minute

var backupPattern = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ$`)

// Backup writes both databases into a new directory below dir, and removes the oldest backups there
// beyond the number to keep. It returns the new directory. It does not use c.Address.
func (c Central) Backup(ctx context.Context, dir string, keep int, now time.Time) (string, error) {
	finished := filepath.Join(dir, now.UTC().Format(backupLayout))

	unfinished := finished + unfinishedSuffix

	err := errors.Join(pruneUnfinished(dir, now), os.RemoveAll(unfinished), os.MkdirAll(unfinished, 0o700))
	if err != nil {
		return "", fmt.Errorf("back up: %w", err)
	}

	for _, d := range Databases() {
		out, err := run(ctx, c.client("backup", d, c.remotes(d))...)
		if err != nil {
			return "", fmt.Errorf("back up %s: %w", d.Name, err)
		}

		if err := atomicfile.Write(filepath.Join(unfinished, d.file+".db"), out, 0o600); err != nil {
			return "", fmt.Errorf("back up %s: %w", d.Name, err)
		}
	}

	if err := os.Rename(unfinished, finished); err != nil {
		return "", fmt.Errorf("back up: %w", err)
	}

	return finished, prune(dir, keep)
}

// client returns the command line of ovsdb-client for a database at the remotes.
func (c Central) client(command string, d Database, remotes string) []string {
	argv := append([]string{"ovsdb-client", "--timeout=120"}, c.TLS.options()...)
	return append(argv, command, remotes, d.Name)
}

// pruneUnfinished removes the directories of backups that were interrupted. They may have filled
// the disk.
func pruneUnfinished(dir string, now time.Time) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("remove unfinished backups: %w", err)
	}

	for _, e := range entries {
		started, err := time.Parse(backupLayout+unfinishedSuffix, e.Name())
		if err != nil || now.Sub(started) < abandonedAge {
			continue
		}

		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove unfinished backups: %w", err)
		}
	}

	return nil
}

// prune removes all but the newest backups. Files that are not backups stay.
func prune(dir string, keep int) error {
	entries, err := os.ReadDir(dir) // sorted by name, which is by time
	if err != nil {
		return fmt.Errorf("remove old backups: %w", err)
	}

	entries = slices.DeleteFunc(entries,
		func(e os.DirEntry) bool { return !backupPattern.MatchString(e.Name()) })
	for i := 0; i < len(entries)-keep; i++ {
		if err := os.RemoveAll(filepath.Join(dir, entries[i].Name())); err != nil {
			return fmt.Errorf("remove old backups: %w", err)
		}
	}

	return nil
}

// Restore replaces the rows of both databases by those of a backup's directory, each in one
// transaction. With force, the backup may be of another schema version. Columns that the present
// schema does not have are then left out. Restore runs in a member's pod, because writes to the
// Southbound database need the server's unix socket. A server that is not the leader forwards them
// to it.
func (c Central) Restore(ctx context.Context, from string, force bool) error {
	for _, d := range Databases() {
		if err := c.restore(ctx, d, filepath.Join(from, d.file+".db"), force); err != nil {
			return fmt.Errorf("restore %s: %w", d.Name, err)
		}
	}

	return nil
}

func (c Central) restore(ctx context.Context, d Database, file string, force bool) error {
	f, err := os.Open(file) // not a pipe: ovsdb-client of Open vSwitch 3.1 seeks in its input
	if err != nil {
		return err
	}
	defer f.Close()

	remotes := c.remotes(d)
	if d.readOnly {
		remotes = c.socket(d)
	}

	// Index 1 is after the name of the program.
	argv := slices.Insert(c.client("restore", d, remotes), 1, "--no-leader-only")
	if force {
		argv = slices.Insert(argv, 1, "--force")
	}

	_, err = runWith(ctx, f, argv...)

	return err
}
