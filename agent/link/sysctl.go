package link

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ReadSysctl returns the value of key, with slashes: "net/ipv4/ip_forward".
func ReadSysctl(key string) (string, error) {
	b, err := os.ReadFile(filepath.Join("/proc/sys", key))
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", key, err)
	}

	return strings.TrimSpace(string(b)), nil
}

// WriteSysctl sets key unless it already has the value.
func WriteSysctl(key, value string) error {
	have, err := ReadSysctl(key)
	if err != nil {
		return err
	}

	if have == value {
		return nil
	}

	if err := os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0); err != nil {
		return fmt.Errorf("write sysctl %s=%s: %w", key, value, err)
	}

	return nil
}

// netSysctls is the directory of the network sysctls.
const netSysctls = "/proc/sys/net"

// AllowSysctls makes the network sysctls writable in this mount namespace, and reports whether they
// were not. Container runtimes make /proc/sys read-only for unprivileged containers, regardless of
// capabilities. It needs CAP_SYS_ADMIN then.
func AllowSysctls() (changed bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(netSysctls, &st); err != nil {
		return false, fmt.Errorf("inspect %s: %w", netSysctls, err)
	}

	if st.Flags&unix.ST_RDONLY == 0 {
		return false, nil
	}

	// A separate mount: the rest of /proc/sys stays read-only.
	if err := unix.Mount(netSysctls, netSysctls, "", unix.MS_BIND, ""); err != nil {
		return false, fmt.Errorf("mount %s: %w", netSysctls, err)
	}

	const flags = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("", netSysctls, "", flags, ""); err != nil {
		return false, fmt.Errorf("mount %s for writing: %w", netSysctls, err)
	}

	return true, nil
}

// DisableIPv6 prevents the kernel from assigning an IPv6 address to the device. It does nothing if
// the kernel lacks IPv6.
func DisableIPv6(device string) error {
	err := WriteSysctl("net/ipv6/conf/"+device+"/disable_ipv6", "1")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}

	return err
}

// QuietIPv6 enables IPv6 on the device without router advertisements and without duplicate address
// detection. It does nothing if the kernel lacks IPv6.
func QuietIPv6(device string) error {
	for _, s := range [][2]string{{"accept_ra", "0"}, {"accept_dad", "0"}, {"disable_ipv6", "0"}} {
		err := WriteSysctl("net/ipv6/conf/"+device+"/"+s[0], s[1])
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}

	return nil
}
