package underlay

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
)

// record is a pool with everything.
var record = cloud.Record{
	VIF: vif(1).ID, Trunk: "0c0c0c0c-0000-4000-8000-000000000001", Network: "0c0c0c0c-0000-4000-8000-000000000002", MTU: 1442,
	Gateways: []cloud.Gateway{
		{Address: netip.MustParsePrefix("10.244.0.1/28"), MAC: "fa:16:3e:00:00:01"},
		{Address: netip.MustParsePrefix("10.244.0.17/28"), MAC: "fa:16:3e:00:00:02"},
		{Address: netip.MustParsePrefix("fd00:10:244::1/64"), MAC: "fa:16:3e:00:00:03"},
	},
	Groups: []string{group},
	Lines: []cloud.Line{
		{
			Port: "0c0c0c0c-0000-4000-8000-000000000003", MAC: "fa:16:3e:00:00:04", Tag: 2,
			Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2")}, Groups: []string{group},
		},
		{
			Port: "0c0c0c0c-0000-4000-8000-000000000004", MAC: "fa:16:3e:00:00:05", Tag: 3,
			Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.3")}, Groups: []string{}, Held: true,
		},
		{ // its groups are unknown
			Port: "0c0c0c0c-0000-4000-8000-000000000005", MAC: "fa:16:3e:00:00:06", Tag: 4,
			Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.4")},
		},
	},
}

// A ConfigMap says everything that a record says.
func TestFormatRecord_isParsed(t *testing.T) {
	for name, want := range map[string]cloud.Record{
		"complete": record,
		"nothing":  {},
		"without a trunk": {
			VIF: record.VIF, Network: record.Network, MTU: 1442, Gateways: record.Gateways[:1], Lines: record.Lines[:1],
		},
	} {
		data, err := formatRecord("k8s", "node1", want)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		got, err := parseRecord(data)
		// All empty slices are equal to nil but those of a line, whose groups may be unknown.
		ofRecord := cmp.FilterPath(func(p cmp.Path) bool { return len(p) <= 2 }, cmpopts.EquateEmpty())

		compare := []cmp.Option{ofRecord, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}
		if diff := cmp.Diff(want, got, compare...); err != nil || diff != "" || !want.Equal(got) {
			t.Errorf("%s: error %v (-formatted +parsed):\n%s", name, err, diff)
		}
	}
}

// A port without groups is published as such, and one with unknown groups, too.
func TestFormatRecord_groups(t *testing.T) {
	data, err := formatRecord("k8s", "node1", record)
	if err != nil {
		t.Fatal(err)
	}

	var got []string

	for line := range strings.Lines(data[annotation.PoolPorts]) {
		fields := strings.Fields(line)
		got = append(got, fields[0]+" "+fields[4])
	}

	if want := []string{"2 " + group, "3 -", "4 ?"}; !slices.Equal(got, want) {
		t.Errorf("tags and groups %q, want %q", got, want)
	}

	if want := `"groups":["` + group + `"]`; !strings.Contains(data[annotation.PoolNode], want) {
		t.Errorf("node %s, want %s", data[annotation.PoolNode], want)
	}
}

// A record that an agent would refuse is an error.
func TestFormatRecord_refusesInvalidRecords(t *testing.T) {
	for want, change := range map[string]func(*cloud.Record){
		"invalid MAC address":  func(r *cloud.Record) { r.Lines[0].MAC = "x" },
		"tag 2 is there twice": func(r *cloud.Record) { r.Lines[1].Tag = 2 },
		"is not a UUID":        func(r *cloud.Record) { r.Trunk = "trunk" },
	} {
		r := record
		r.Lines = append([]cloud.Line{}, record.Lines...)
		change(&r)

		if _, err := formatRecord("k8s", "node1", r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// publish writes only what has changed, and replaces a ConfigMap that cannot be used. read returns
// what was published.
func TestConfigMaps(t *testing.T) {
	r := newRig(t)

	maps := &configMaps{
		cluster: "k8s", client: r.client, hold: func(context.Context) error { return nil },
		log: slog.New(slog.DiscardHandler), published: map[string]cloud.Record{},
	}
	if _, err := maps.read(t.Context()); err == nil || !strings.Contains(err.Error(), "namespace ovn-ebpf-pools does not exist") {
		t.Errorf("read without the namespace: %v", err)
	}

	if err := maps.publish(t.Context(), "node1", &record); err == nil || !strings.Contains(err.Error(), "namespace ovn-ebpf-pools does not exist") {
		t.Errorf("publish without the namespace: %v", err)
	}

	r.createNamespace()

	publish := func(want *cloud.Record) string {
		t.Helper()

		if err := maps.publish(t.Context(), "node1", want); err != nil {
			t.Fatal(err)
		}

		got, err := maps.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if want == nil {
			if len(got) != 0 {
				t.Errorf("read %v after the deletion", got)
			}

			return ""
		}

		if len(got) != 1 || got["node1"] == nil || !got["node1"].Equal(*want) {
			t.Errorf("read %v, want %v", got, *want)
		}

		return r.configMap(1).ResourceVersion
	}

	first := publish(&record)
	if again := publish(&record); again != first {
		t.Errorf("resourceVersion %s after the same was published again, was %s", again, first)
	}

	publish(&cloud.Record{VIF: record.VIF, Lines: record.Lines})

	broken := r.configMap(1)

	broken.Data[annotation.PoolPorts] = "nonsense"
	if _, err := r.client.CoreV1().ConfigMaps(annotation.PoolNamespace).Update(t.Context(), broken, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	if got, err := maps.read(t.Context()); err != nil || len(got) != 1 || got["node1"] != nil {
		t.Errorf("read of a broken ConfigMap: %v, %v; want the node without a record", got, err)
	}

	publish(&record)
	publish(nil)
	publish(nil)
}
