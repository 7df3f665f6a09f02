package frame

import (
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// TestAnswer compares frames with the layouts of RFC 826 and RFC 4861.
func TestAnswer(t *testing.T) {
	mac := func(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }

	for _, tt := range []struct {
		name, from, to string
		vlan           uint16
		want           string
	}{
		{"ARP", "172.30.0.200", "172.30.0.11", 0, "020000000001020000000002" + "0806" + "0001080006040002" + "020000000002ac1e00c8" + "020000000001ac1e000b"},
		{"ARP in a VLAN", "172.30.0.200", "172.30.0.11", 7, "020000000001020000000002" + "81000007" + "0806" + "0001080006040002" + "020000000002ac1e00c8" + "020000000001ac1e000b"},
		{
			"neighbour discovery", "fe80::200", "fd00::11", 0, "020000000001020000000002" + "86dd" + "6000000000203aff" +
				"fe800000000000000000000000000200" + "fd000000000000000000000000000011" + "8800" + "958d" + "e0000000" + "fe800000000000000000000000000200" + "0201" + "020000000002",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Answer(Host{mac(2), netip.MustParseAddr(tt.from)}, Host{mac(1), netip.MustParseAddr(tt.to)}, tt.vlan)
			if err != nil {
				t.Fatal(err)
			}

			if text := hex.EncodeToString(got); text != tt.want && !strings.HasPrefix(text, tt.want+"0000") { // Ethernet's shortest frame is filled up
				t.Errorf("frame\n%s, want\n%s", text, tt.want)
			}
		})
	}
}
