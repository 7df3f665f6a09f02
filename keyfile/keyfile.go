// Package keyfile reads files that only their owner should read, such as private keys.
//
// A key that other users can read is used all the same, and Exposed returns a warning about it. It
// is not an error as with ssh, because Secrets that a pod mounts have mode 0644 by default, and
// because Open vSwitch does not check the mode either.
package keyfile

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// othersMode are the bits of a mode that permit access to the group or to all users.
const othersMode fs.FileMode = 0o077

// Read reads the file like os.ReadFile. If the file exists, an error also has its mode and owner.
func Read(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err == nil {
		return content, nil
	}

	info, errStat := os.Stat(path)
	if errStat != nil {
		return nil, err
	}

	owner := ""
	if stat, isUnix := info.Sys().(*syscall.Stat_t); isUnix {
		owner = fmt.Sprintf(" of user %d, group %d", stat.Uid, stat.Gid)
	}

	return nil, fmt.Errorf("%w: it has mode %04o%s; this is user %d",
		err, info.Mode().Perm(), owner, os.Geteuid())
}

// Exposed returns a warning if the mode of a private key's file lets other users than its owner
// access it. It returns "" if the mode does not, or if it cannot be read.
func Exposed(path string) string {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&othersMode == 0 {
		return ""
	}

	return fmt.Sprintf("private key %s has mode %04o: others than its owner can read it or change it; chmod 600 %s",
		path, info.Mode().Perm(), path)
}
