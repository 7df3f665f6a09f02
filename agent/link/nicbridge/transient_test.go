package nicbridge

import (
	"os"
	"path/filepath"
	"testing"
)

func TestKeptAtBoot(t *testing.T) {
	const debian, fedora = "etc/default/openvswitch-switch", "etc/sysconfig/openvswitch"
	for _, tt := range []struct {
		name, file, text string
		warn             bool
	}{
		{"Debian's as it is installed", debian, "# OVS_CTL_OPTS: Extra options, like --delete-transient-ports.\n# OVS_CTL_OPTS=\n", true},
		{"Debian's, told", debian, "OVS_CTL_OPTS=--delete-transient-ports\n", false},
		{"Debian's, told something else", debian, "OVS_CTL_OPTS='--no-mlockall'\n", true},
		{"Fedora's, told", fedora, "OPTIONS=\"--ovsdb-server-priority=-5 --delete-transient-ports\"\n", false},
		{"nothing to be seen, as in a container", "etc/hostname", "node1\n", false},
	} {
		root := t.TempDir()

		path := filepath.Join(root, tt.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}

		want := ""
		if tt.warn {
			want = path
		}

		if got := keepsTransientPorts(root); got != want {
			t.Errorf("%s: %q, want %q", tt.name, got, want)
		}
	}
}
