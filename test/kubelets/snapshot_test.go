package kubelets

import (
	"strings"
	"testing"
)

func TestSnapshot(t *testing.T) {
	before := snapshot{"node1 links": {"lo mtu 65536", "eth0 mtu 1500"}, "node1 pins": nil, "cluster objects": {"namespace/default"}}
	for _, c := range []struct {
		name  string
		after snapshot
		want  string
	}{
		{"nothing changed", snapshot{"node1 links": {"eth0 mtu 1500", "lo mtu 65536"}, "cluster objects": {"namespace/default"}}, ""},
		{"what stays", snapshot{"node1 links": {"lo mtu 65536", "eth0 mtu 1500", "br-int mtu 1500"}, "cluster objects": {"namespace/default"}}, ""},
		{"a link is gone", snapshot{"node1 links": {"lo mtu 65536"}, "cluster objects": {"namespace/default"}}, `node1 links: gone: ["eth0 mtu 1500"]`},
		{"a link is left", snapshot{"node1 links": {"lo mtu 65536", "eth0 mtu 1500", "breth0 mtu 1500"}, "cluster objects": {"namespace/default"}}, `node1 links: left: ["breth0 mtu 1500"]`},
		{"what stays, but of another kind", snapshot{"node1 links": {"lo mtu 65536", "eth0 mtu 1500"}, "node1 pins": {"br-int mtu 1500"}, "cluster objects": {"namespace/default"}}, "node1 pins: left"},
		{"a kind is gone", snapshot{"node1 links": {"lo mtu 65536", "eth0 mtu 1500"}}, "cluster objects: gone"},
	} {
		err := before.same(c.after)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
