package lab

import (
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/test/mount"
)

// Residue lists the remains of a lab of that directory and name: the directory itself, namespaces,
// processes that name the directory, mounts below it, and links of the caller's namespace with the
// lab's name. After Down the list is empty.
func Residue(dir, name string) ([]string, error) {
	o, err := Options{Dir: dir, Name: name}.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("look for residue: %w", err)
	}

	var found []string
	if _, err := os.Stat(o.Dir); err == nil {
		found = append(found, "directory "+o.Dir)
	}

	names, err := netns.List(o.Name + "-")
	if err != nil {
		return nil, fmt.Errorf("look for residue: %w", err)
	}

	for _, n := range names {
		found = append(found, "netns "+n)
	}

	for _, pid := range pids() {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended

		line := strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
		if pid != os.Getpid() && strings.Contains(line, o.Dir+"/") {
			found = append(found, fmt.Sprintf("process %d %s", pid, line))
		}
	}

	mounts, err := mount.Below(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("look for residue: %w", err)
	}

	for _, m := range mounts {
		found = append(found, "mount "+m)
	}

	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("look for residue: %w", err)
	}

	for _, link := range links {
		if strings.HasPrefix(link.Attrs().Name, o.Name) {
			found = append(found, "link "+link.Attrs().Name)
		}
	}

	return found, nil
}
