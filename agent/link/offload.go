package link

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands and a flag of linux/ethtool.h.
const (
	ethtoolGetFlags = 0x25    // ETHTOOL_GFLAGS
	ethtoolSetFlags = 0x26    // ETHTOOL_SFLAGS
	ethtoolSetTx    = 0x17    // ETHTOOL_STXCSUM
	ethtoolGetTx    = 0x16    // ETHTOOL_GTXCSUM
	flagLRO         = 1 << 15 // ETH_FLAG_LRO
)

// DisableLRO disables large receive offload, because merged packets cannot be forwarded. A device
// without LRO is not an error.
func DisableLRO(device string) error {
	flags, err := ethtool(device, ethtoolGetFlags, 0)
	if errors.Is(err, unix.EOPNOTSUPP) || err == nil && flags&flagLRO == 0 {
		return nil
	}

	if err == nil {
		_, err = ethtool(device, ethtoolSetFlags, flags&^flagLRO)
	}

	if err != nil {
		return fmt.Errorf("switch LRO of %s off: %w", device, err)
	}

	return nil
}

// DisableTxChecksum makes the kernel compute checksums before the device gets a packet, because the
// userspace datapath does not compute them.
func DisableTxChecksum(device string) error {
	on, err := ethtool(device, ethtoolGetTx, 0)
	if errors.Is(err, unix.EOPNOTSUPP) || err == nil && on == 0 {
		return nil
	}

	if err == nil {
		_, err = ethtool(device, ethtoolSetTx, 0)
	}

	if err != nil {
		return fmt.Errorf("switch transmit checksum offload of %s off: %w", device, err)
	}

	return nil
}

// ethtool runs one command with struct ethtool_value.
func ethtool(device string, command, value uint32) (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()

	arg := struct{ command, value uint32 }{command, value}
	req := struct { // struct ifreq, 64 bit
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&arg)}
	copy(req.name[:unix.IFNAMSIZ-1], device)

	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return 0, errno
	}

	return arg.value, nil
}
