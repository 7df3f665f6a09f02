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

// backupName is the directory of one backup: its time, in UTC.
const backupName = "2006-01-02T15-04-05Z"

// unfinished is appended to the name of a backup's directory until the backup is complete.
const unfinished = ".new"

// abandoned is the age at which an unfinished backup is not in progress any more: longer than the
// tools' timeouts.
const abandoned = 10 * time.Minute

var backupPattern = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ$`)

// Backup writes both databases into a new directory below dir, and removes the oldest backups there
// beyond the number to keep. It returns the new directory. It needs no address of its own.
func (c Central) Backup(ctx context.Context, dir string, keep int, now time.Time) (string, error) {
	to := filepath.Join(dir, now.UTC().Format(backupName))

	half := to + unfinished

	err := errors.Join(pruneUnfinished(dir, now), os.RemoveAll(half), os.MkdirAll(half, 0o700))
	if err != nil {
		return "", fmt.Errorf("back up: %w", err)
	}

	for _, d := range Databases() {
		out, err := run(ctx, c.client("backup", d, c.remotes(d))...)
		if err != nil {
			return "", fmt.Errorf("back up %s: %w", d.Name, err)
		}

		if err := atomicfile.Write(filepath.Join(half, d.file+".db"), out, 0o600); err != nil {
			return "", fmt.Errorf("back up %s: %w", d.Name, err)
		}
	}

	if err := os.Rename(half, to); err != nil {
		return "", fmt.Errorf("back up: %w", err)
	}

	return to, prune(dir, keep)
}

// client returns the command line of ovsdb-client for a database at the remotes.
func (c Central) client(command string, d Database, remotes string) []string {
	argv := append([]string{"ovsdb-client", "--timeout=120"}, c.TLS.options()...)
	return append(argv, command, remotes, d.Name)
}

// pruneUnfinished removes what backups left that ended half-way: they may have filled the disk.
func pruneUnfinished(dir string, now time.Time) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("remove unfinished backups: %w", err)
	}

	for _, e := range entries {
		started, err := time.Parse(backupName+unfinished, e.Name())
		if err != nil || now.Sub(started) < abandoned {
			continue
		}

		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove unfinished backups: %w", err)
		}
	}

	return nil
}

// prune removes all backups but the newest. Other files stay.
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
// transaction. With force the backup may be of another schema version; columns that the present one
// does not have are left out. It runs in a member's pod, because writes to the Southbound database
// need the server's unix socket. A follower forwards them to the leader.
func (c Central) Restore(ctx context.Context, from string, force bool) error {
	for _, d := range Databases() {
		if err := c.restore(ctx, d, filepath.Join(from, d.file+".db"), force); err != nil {
			return fmt.Errorf("restore %s: %w", d.Name, err)
		}
	}

	return nil
}

func (c Central) restore(ctx context.Context, d Database, file string, force bool) error {
	f, err := os.Open(file) // as it is: ovsdb-client of Open vSwitch 3.1 seeks in its input
	if err != nil {
		return err
	}
	defer f.Close()

	remotes := c.remotes(d)
	if d.readOnly {
		remotes = c.socket(d)
	}

	argv := slices.Insert(c.client("restore", d, remotes), 1, "--no-leader-only")
	if force {
		argv = slices.Insert(argv, 1, "--force")
	}

	_, err = runWith(ctx, f, argv...)

	return err
}
