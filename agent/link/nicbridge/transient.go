package nicbridge

import (
	"os"
	"path/filepath"
	"strings"
)

// Files in which distributions configure the options of ovs-ctl.
var startFiles = []string{"etc/default/openvswitch-switch", "etc/sysconfig/openvswitch"}

// keptAtBoot returns the file that makes Open vSwitch keep transient ports at start. The NIC would
// then be a port of the bridge right after a reboot, while the bridge lacks the host's addresses
// until an agent runs. It returns "" if Open vSwitch deletes them, or if no file exists. root is
// the parent of /etc.
func keptAtBoot(root string) string {
	kept := ""
	for _, name := range startFiles {
		path := filepath.Join(root, name)
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		kept = path
		for line := range strings.Lines(string(b)) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") && strings.Contains(line, "--delete-transient-ports") {
				return ""
			}
		}
	}
	return kept
}
