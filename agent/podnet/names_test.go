package podnet

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Each address maps to the pod's name. Of two sandboxes with the same address the later one counts.
// Files that are no records stay untouched.
func TestNames(t *testing.T) {
	w := &InterfaceManager{Dir: t.TempDir()}

	at := time.Unix(1700000000, 0)
	for _, p := range []Pod{
		{ContainerID: "c1", LogicalPort: "default_web-0", Time: at, Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.1.5/24"), netip.MustParsePrefix("fd00::5/64")}},
		{ContainerID: "c2", LogicalPort: "prod_db-0", Time: at.Add(time.Second), Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.1.5/24")}},
	} {
		p.Interface = "eth0"
		if err := w.record(p); err != nil {
			t.Fatal(err)
		}
	}

	junk := filepath.Join(w.Dir, "x.json")
	if err := os.WriteFile(junk, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}

	got, err := Names(w.Dir)

	want := map[netip.Addr]string{netip.MustParseAddr("10.244.1.5"): "prod/db-0", netip.MustParseAddr("fd00::5"): "default/web-0"}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}

	if _, err := os.Stat(junk); err != nil {
		t.Error(err)
	}

	if got, err := Names(filepath.Join(w.Dir, "nosuch")); err != nil || len(got) > 0 {
		t.Errorf("no directory: %v, %v", got, err)
	}
}
