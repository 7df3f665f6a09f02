package annotation_test

import (
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

func TestParseRequest(t *testing.T) {
	for _, tt := range []struct{ name, value, want, err string }{
		{name: "absent"},
		{name: "a name asks for nothing", value: "ovn-kubernetes/default"},
		{name: "an object", value: `{"name":"default","namespace":"ovn-kubernetes","ips":["10.244.0.9"],"mac":"02:00:00:00:00:09"}`, want: "10.244.0.9 02:00:00:00:00:09"},
		{name: "a list", value: ` [{"name":"default","ips":["10.244.0.9/24","fd00::9/64"]}]`, want: "10.244.0.9 fd00::9"},
		{name: "MAC only", value: `[{"name":"default","mac":"02:00:00:00:00:09"}]`, want: "02:00:00:00:00:09"},
		{name: "nothing asked for", value: `{"name":"default"}`},
		{name: "not JSON", value: `{"name":`, err: "default-network"},
		{name: "two networks", value: `[{"name":"a"},{"name":"b"}]`, err: "2 networks"},
		{name: "no network", value: `[]`, err: "0 networks"},
		{name: "no address", value: `{"ips":["10.244.0.300"]}`, err: "ips"},
		{name: "no prefix", value: `{"ips":["10.244.0.3/99"]}`, err: "ips"},
		{name: "two of a family", value: `{"ips":["10.244.0.3","10.244.0.4"]}`, err: "one family"},
		{name: "a zone", value: `{"ips":["fe80::1%eth0"]}`, err: "zone"},
		{name: "multicast", value: `{"mac":"01:00:5e:00:00:01"}`, err: "multicast"},
		{name: "broadcast", value: `{"mac":"ff:ff:ff:ff:ff:ff"}`, err: "multicast"},
		{name: "zero", value: `{"mac":"00:00:00:00:00:00"}`, err: "no address"},
		{name: "InfiniBand", value: `{"mac":"02:00:00:00:00:00:00:01"}`, err: "not an Ethernet address"},
		{name: "no MAC", value: `{"mac":"nonsense"}`, err: "mac"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := annotation.ParseRequest(map[string]string{annotation.DefaultNetwork: tt.value})
			if err != nil || tt.err != "" {
				if err == nil || tt.err == "" || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want one with %q", err, tt.err)
				}

				return
			}

			var text []string
			for _, a := range got.Addresses {
				text = append(text, a.String())
			}

			if got.MAC != nil {
				text = append(text, got.MAC.String())
			}

			if s := strings.Join(text, " "); s != tt.want {
				t.Errorf("request %q, want %q", s, tt.want)
			}
		})
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add(`[{"name":"default","ips":["10.244.0.9/24","fd00::9/64"],"mac":"02:00:00:00:00:09"}]`)
	f.Fuzz(func(t *testing.T, value string) {
		got, err := annotation.ParseRequest(map[string]string{annotation.DefaultNetwork: value})
		if err != nil {
			return
		}

		again, err := annotation.ParseRequest(map[string]string{annotation.DefaultNetwork: annotation.FormatRequest(got)})
		if err != nil || len(again.Addresses) != len(got.Addresses) || again.MAC.String() != got.MAC.String() {
			t.Errorf("%q: %v, then %v, %v", value, got, again, err)
		}
	})
}
