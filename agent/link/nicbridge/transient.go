package nicbridge

import (
	"os"
	"path/filepath"
	"strings"
)

// Where distributions have the options that ovs-ctl starts Open vSwitch with.
var startFiles = []string{"etc/default/openvswitch-switch", "etc/sysconfig/openvswitch"}

// keptAtBoot returns the file by which Open vSwitch keeps transient ports when it
// starts: the NIC would be a port of the bridge right after a reboot, and the bridge
// without the host's addresses until an agent runs. It returns "" where Open vSwitch
// is told to delete them, or no file says how it is started. root is where /etc is.
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
