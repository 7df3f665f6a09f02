package nicbridge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// owner is a program that configures the NIC and would undo a move, or need the NIC after it. As an
// error it contains advice for the operator.
type owner struct {
	nic, program, advice string
}

func (o *owner) Error() string {
	return fmt.Sprintf("%s belongs to %s: %s; or force the move, and expect its lease to run out",
		o.nic, o.program, o.advice)
}

func (o *owner) Unwrap() error { return ErrOwned }

// findOwner returns the program that configures the device. It detects NetworkManager and
// systemd-networkd by their state files, and a DHCP client by its command line. root is the parent
// of /run and /proc. Only processes of this network namespace count.
func findOwner(root, nic string, index int) *owner {
	file := strconv.Itoa(index) // both name the files of devices by their index

	managed, ok := readKey(filepath.Join(root, "run/NetworkManager/devices", file), "managed")
	if ok && managed != "false" && managed != "0" {
		return &owner{nic, "NetworkManager", "make it unmanaged (nmcli device set " + nic +
			" managed no, and unmanaged-devices in NetworkManager.conf) and give the addresses statically"}
	}

	state, ok := readKey(filepath.Join(root, "run/systemd/netif/links", file), "ADMIN_STATE")
	if ok && state != "unmanaged" {
		return &owner{
			nic,
			"systemd-networkd",
			"set Unmanaged=yes in its .network file and give the addresses statically, " +
				"or let networkd configure the bridge instead",
		}
	}

	if p := dhcpClient(root, nic); p != "" {
		return &owner{nic, p, "stop it and give the addresses statically, or start it on the bridge instead"}
	}

	return nil
}

// readKey returns the value of a KEY=VALUE line, or false if the file has none.
func readKey(path, key string) (string, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", false
	}

	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			return v, true
		}
	}

	return "", false
}

// dhcpClient returns the DHCP client of the device, with its process ID.
func dhcpClient(root, nic string) string {
	ownNetns, _ := os.Readlink(filepath.Join(root, "proc/self/ns/net"))

	processes, _ := filepath.Glob(filepath.Join(root, "proc/[0-9]*"))
	for _, p := range processes {
		b, err := os.ReadFile(filepath.Join(p, "cmdline"))
		if err != nil || len(b) == 0 {
			continue
		}

		argv := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")

		program := filepath.Base(strings.TrimSuffix(argv[0], ":"))
		if !slices.Contains([]string{"dhclient", "dhcpcd", "udhcpc"}, program) ||
			!slices.Contains(argv[1:], nic) && !usesAllDevices(root, argv[1:]) {
			continue
		}

		// The kernel hides the namespace of a process with more capabilities. Such a process may be
		// in this one.
		itsNetns, err := os.Readlink(filepath.Join(p, "ns/net"))
		if errors.Is(err, fs.ErrPermission) || err == nil && itsNetns == ownNetns {
			return program + " (process " + filepath.Base(p) + ")"
		}
	}

	return ""
}

// usesAllDevices reports whether the arguments of a DHCP client name no device.
func usesAllDevices(root string, args []string) bool {
	return !slices.ContainsFunc(args, func(a string) bool {
		if a == "" || strings.ContainsAny(a, "/.") {
			return false
		}

		_, err := os.Stat(filepath.Join(root, "proc/sys/net/ipv4/conf", a))

		return err == nil
	})
}

// Files in which distributions configure the options of ovs-ctl.
var startFiles = []string{"etc/default/openvswitch-switch", "etc/sysconfig/openvswitch"}

// keepsTransientPorts returns the file that makes Open vSwitch keep transient ports at start. The
// NIC would then be a port of the bridge right after a reboot, while the bridge lacks the host's
// addresses until an agent runs. It returns "" if Open vSwitch deletes them, or if no file exists.
// root is the parent of /etc.
func keepsTransientPorts(root string) string {
	file := "" // the last file of startFiles that exists

	for _, name := range startFiles {
		path := filepath.Join(root, name)

		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}

		file = path

		for line := range strings.Lines(string(b)) {
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, "#") && strings.Contains(line, "--delete-transient-ports") {
				return ""
			}
		}
	}

	return file
}
