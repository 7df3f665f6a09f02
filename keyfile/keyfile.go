// Package keyfile reads files that only their owner should read.
//
// A file that is too open is a warning, not an error, other than with ssh: Secrets that a pod
// mounts have mode 0644 unless the manifest says otherwise, and Open vSwitch asks for no mode.
package keyfile

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// forOthers are the bits of a mode that let the group or all users in.
const forOthers fs.FileMode = 0o077

// Read reads the file like os.ReadFile. Its error tells the mode and owner of a file that exists.
func Read(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		return b, nil
	}

	info, statErr := os.Stat(path)
	if statErr != nil {
		return nil, err
	}

	owner := ""
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = fmt.Sprintf(" of user %d, group %d", s.Uid, s.Gid)
	}

	return nil, fmt.Errorf("%w: it has mode %04o%s; this is user %d",
		err, info.Mode().Perm(), owner, os.Geteuid())
}

// Exposed returns what is wrong with the mode of a private key's file, "" if the mode is right or
// there is no file.
func Exposed(path string) string {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&forOthers == 0 {
		return ""
	}

	return fmt.Sprintf("private key %s has mode %04o: others than its owner can read it or change it; chmod 600 %s",
		path, info.Mode().Perm(), path)
}
