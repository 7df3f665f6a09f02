package nicbridge

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func FuzzAttrs(f *testing.F) {
	f.Add(make([]byte, routeHeader))
	f.Add(build(make([]byte, routeHeader), []attr{{unix.RTA_MULTIPATH, []byte{8, 0, 0, 0, 1, 0, 0, 0}}, {unix.RTA_OIF, put32(1)}}))
	f.Add(build(make([]byte, routeHeader), []attr{{unix.RTA_CACHEINFO, make([]byte, 32)}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := attrs(b, routeHeader)
		if err != nil {
			return
		}

		again, err := attrs(build(b[:routeHeader], list), routeHeader)
		if err != nil || !slices.EqualFunc(list, again, func(a, b attr) bool { return a.kind == b.kind && string(a.data) == string(b.data) }) {
			t.Errorf("built and read again: %v, error %v; want %v", again, err, list)
		}

		_, _ = parseRoute(b)
		_, _ = retargetRoute(b, 1, 2)
		_, _ = retargetRule(b, "a", "b")
		_, _ = retargetNeigh(b, 1)
		_, _ = parseAddr(b)
		_, _ = retargetAddr(b, "a", "b", 1, true)
	})
}

func TestRelabel(t *testing.T) {
	for _, c := range [][4]string{
		{"eth0", "eth0", "breth0", "breth0"},
		{"eth0:1", "eth0", "breth0", "breth0:1"},
		{"eth0:verylongs", "eth0", "breth0", "breth0"}, // would be longer than a label may be
		{"other", "eth0", "breth0", "other"},
	} {
		if got := relabel(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("label %q from %s to %s: %q, want %q", c[0], c[1], c[2], got, c[3])
		}
	}
}

func TestOwner(t *testing.T) {
	for _, c := range []struct{ name, path, content, want string }{
		{"none", "run/empty", "", ""},
		{"NetworkManager", "run/NetworkManager/devices/7", "[device]\nmanaged=true\n", "NetworkManager"},
		{"unmanaged", "run/NetworkManager/devices/7", "[device]\nmanaged=false\n", ""},
		{"another device", "run/NetworkManager/devices/8", "[device]\nmanaged=true\n", ""},
		{"networkd", "run/systemd/netif/links/7", "ADMIN_STATE=configured\nOPER_STATE=routable\n", "systemd-networkd"},
		{"networkd, unmanaged", "run/systemd/netif/links/7", "ADMIN_STATE=unmanaged\n", ""},
		{"dhclient", "proc/42/cmdline", "/sbin/dhclient\x00-4\x00-v\x00eth0\x00", "dhclient (process 42)"},
		{"of another device", "proc/42/cmdline", "/sbin/dhclient\x00-4\x00eth1\x00", ""},
		{"for all devices", "proc/42/cmdline", "dhcpcd\x00-b\x00", "dhcpcd (process 42)"},
		{"another program", "proc/42/cmdline", "vi\x00eth0\x00", ""},
	} {
		root := t.TempDir()
		write := func(path, content string) {
			t.Helper()

			path = filepath.Join(root, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		write(c.path, c.content)

		for _, device := range []string{"eth0", "eth1"} {
			write("proc/sys/net/ipv4/conf/"+device+"/forwarding", "0")
		}

		for _, p := range []string{"self", "42"} {
			dir := filepath.Join(root, "proc", p, "ns")
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink("net:[1]", filepath.Join(dir, "net"))); err != nil {
				t.Fatal(err)
			}
		}

		got := findOwner(root, "eth0", 7)
		switch {
		case got == nil && c.want != "" || got != nil && got.program != c.want:
			t.Errorf("%s: %v, want %q", c.name, got, c.want)
		case got != nil && (!errors.Is(got, ErrOwned) || !strings.Contains(got.Error(), "eth0 belongs to "+c.want)):
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestOwnerOfMoreCapabilities covers a DHCP client with more capabilities than the agent. The
// kernel hides its network namespace, so its NIC is not moved.
func TestOwnerOfMoreCapabilities(t *testing.T) {
	const nic = "lo"

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	client := exec.Command("cat", "-", nic)
	client.Args[0] = "/sbin/dhclient"

	stdin, err := client.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := client.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		stdin.Close()

		_ = client.Wait()
	})

	want := fmt.Sprintf("%s belongs to dhclient (process %d)", nic, client.Process.Pid)
	for _, bounds := range []string{"+net_admin", "-all,+net_admin,+bpf,+perfmon,+sys_admin"} {
		out, err := exec.Command("setpriv", "--bounding-set", bounds, self, "owner", nic).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("with capabilities %s: %q, error %v, want %q", bounds, out, err, want)
		}
	}
}

// A rule's source ports have the same attribute number as a route's lifetime.
func TestCanonical(t *testing.T) {
	const sportRange = unix.RTA_EXPIRES // FRA_SPORT_RANGE

	message := func(typ uint16, data byte) []byte {
		return build(make([]byte, ruleHeader), []attr{{kind: typ, data: []byte{data, 0, data, 0}}})
	}
	if canonicalRule(message(sportRange, 1)) == canonicalRule(message(sportRange, 2)) {
		t.Error("rules for different source ports pass for the same")
	}

	if canonicalRoute(message(unix.RTA_EXPIRES, 1)) != canonicalRoute(message(unix.RTA_EXPIRES, 2)) {
		t.Error("a route's lifetime counts")
	}
}
