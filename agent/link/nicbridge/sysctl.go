package nicbridge

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
)

// ownSetting reports whether settings does not write the IPv6 setting: it has its own step and
// order, or is not a setting.
func ownSetting(name string) bool {
	switch name {
	case "disable_ipv6", "addr_gen_mode", "stable_secret", "mtu":
		return true
	}
	return false
}

// readSysctls returns the per-interface settings, by names like "ipv4/rp_filter". It skips
// unreadable ones, such as an unset secret.
func readSysctls(device string) map[string]string {
	out := map[string]string{}
	for _, family := range []string{"ipv4", "ipv6"} {
		entries, _ := os.ReadDir(filepath.Join("/proc/sys/net", family, "conf", device))
		for _, e := range entries {
			if v, err := link.ReadSysctl("net/" + family + "/conf/" + device + "/" + e.Name()); err == nil {
				out[family+"/"+e.Name()] = v
			}
		}
	}
	return out
}

// common returns the settings of want that need no specific order and differ from have. It skips
// settings that have lacks.
func common(want, have map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if v, ok := have[k]; ok && v != want[k] && !ownSetting(filepath.Base(k)) {
			out = append(out, k)
		}
	}
	return out
}

func writeSysctl(device, key, value string) error {
	return link.WriteSysctl("net/"+filepath.Dir(key)+"/conf/"+device+"/"+filepath.Base(key), value)
}
