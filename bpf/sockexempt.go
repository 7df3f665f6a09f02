package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ExemptSocket excludes a TCP socket of this process from the translation by Sock. It must be
// called before the socket connects, and needs no Sock: the programs and tables in pinDir may be
// those of an earlier process. Without such a table, because nothing is attached or because the
// programs are of a version without exemptions, it does nothing.
func ExemptSocket(pinDir string, fd uintptr) error {
	m, err := ebpf.LoadPinnedMap(filepath.Join(pinDir, sockMapSockExempt), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("exempt socket: open table: %w", err)
	}

	defer m.Close()

	cookie, err := unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		return fmt.Errorf("exempt socket: read cookie: %w", err)
	}

	if err := m.Put(cookie, uint8(1)); err != nil {
		return fmt.Errorf("exempt socket: %w", err)
	}

	return nil
}
