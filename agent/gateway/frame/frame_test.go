package frame

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

var (
	srcMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	dstMAC = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

// The gateway reads from a frame what was asked for.
func TestBytes(t *testing.T) {
	tests := []struct {
		name     string
		spec     Spec
		proto    uint8
		flow     string // of Microflow, a part
		describe string // a part
	}{
		{"tcp", Spec{Proto: "tcp", Src: addrPort("192.0.2.1:1000"), Dst: addrPort("192.0.2.2:80"), Flags: []string{"syn"}}, 6, "tcp.src == 1000 && tcp.dst == 80", "TCP 1000->80 [syn]"},
		{"tcp6", Spec{Proto: "tcp", Src: addrPort("[2001:db8::1]:1000"), Dst: addrPort("[2001:db8::2]:80"), Flags: []string{"ack", "fin"}}, 6, "ip6.dst == 2001:db8::2", "[ack,fin]"},
		{"udp", Spec{Proto: "udp", Src: addrPort("192.0.2.1:1000"), Dst: addrPort("192.0.2.2:53"), VLAN: 7, Payload: 100}, 17, "udp.dst == 53", "VLAN 7"},
		{"sctp", Spec{Proto: "sctp", Src: addrPort("192.0.2.1:1000"), Dst: addrPort("192.0.2.2:53")}, 132, "sctp.dst == 53", "SCTP 1000->53"},
		{"ping", Spec{Proto: "icmp", Src: addrPort("192.0.2.1:0"), Dst: addrPort("192.0.2.2:0"), ICMP: ICMP{Type: Echo(false, false), ID: 9}}, 1, "icmp4.type == 8", "ICMP EchoRequest"},
		{"pong6", Spec{Proto: "icmp", Src: addrPort("[2001:db8::1]:0"), Dst: addrPort("[2001:db8::2]:0"), ICMP: ICMP{Type: Echo(true, true), ID: 9}}, 58, "icmp6.type == 129", "EchoReply"},
		{"gre", Spec{Proto: "47", Src: addrPort("192.0.2.1:0"), Dst: addrPort("192.0.2.2:0")}, 47, "ip.proto == 47", "192.0.2.1->192.0.2.2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.spec.SrcMAC, tt.spec.DstMAC = srcMAC, dstMAC

			b, err := tt.spec.Bytes()
			if err != nil {
				t.Fatal(err)
			}

			got := verdict.Parse(b)
			if !got.Whole || got.IP.Proto != tt.proto || got.IP.Src != tt.spec.Src.Addr() || got.IP.Dst != tt.spec.Dst.Addr() {
				t.Errorf("read as %+v", got)
			}

			if got.VID != tt.spec.VLAN || got.IP.SrcPort != tt.spec.Src.Port() || got.IP.DstPort != tt.spec.Dst.Port() || got.IP.EchoID != tt.spec.ICMP.ID {
				t.Errorf("read as %+v", got)
			}

			if s := Microflow(b); !strings.Contains(s, tt.flow) {
				t.Errorf("microflow %s: no %q", s, tt.flow)
			}

			if s := Describe(b); !strings.Contains(s, tt.describe) {
				t.Errorf("described as %s: no %q", s, tt.describe)
			}
		})
	}
}

func TestARP(t *testing.T) {
	b, err := Spec{Proto: "arp", SrcMAC: srcMAC, DstMAC: dstMAC, Src: addrPort("192.0.2.1:0"), Dst: addrPort("192.0.2.2:0")}.Bytes()
	if err != nil {
		t.Fatal(err)
	}

	got := verdict.Parse(b)
	if !got.Whole || got.ARP.Op != 1 || got.ARP.Sender.String() != "192.0.2.1" || got.ARP.Target.String() != "192.0.2.2" {
		t.Errorf("read as %+v", got)
	}
}

func TestBadSpec(t *testing.T) {
	for want, s := range map[string]Spec{
		"differ in family":     {Proto: "tcp", Src: addrPort("192.0.2.1:1"), Dst: addrPort("[2001:db8::2]:80")},
		`unknown TCP flag "x"`: {Proto: "tcp", Src: addrPort("192.0.2.1:1"), Dst: addrPort("192.0.2.2:80"), Flags: []string{"x"}},
		`protocol "tpc"`:       {Proto: "tpc", Src: addrPort("192.0.2.1:1"), Dst: addrPort("192.0.2.2:80")},
		"ARP is IPv4 only":     {Proto: "arp", Src: addrPort("[2001:db8::1]:1"), Dst: addrPort("[2001:db8::2]:80")},
	} {
		if _, err := s.Bytes(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}

// Frames come out of both kinds of file as they went in.
func TestFromCapture(t *testing.T) {
	first, second := bytes.Repeat([]byte{1}, 60), bytes.Repeat([]byte{2}, 80)
	plain, ng, other := t.TempDir()+"/a.pcap", t.TempDir()+"/a.pcapng", t.TempDir()+"/wlan.pcap"
	write(t, plain, layers.LinkTypeEthernet, first, second)
	write(t, other, layers.LinkTypeIEEE802_11, first)
	writeNg(t, ng, first, second)

	for _, path := range []string{plain, ng} {
		if got, err := FromCapture(path, 2); err != nil || !bytes.Equal(got, second) {
			t.Errorf("%s: %x, %v", path, got, err)
		}

		if _, err := FromCapture(path, 3); err == nil || !strings.Contains(err.Error(), "has only 2 frames") {
			t.Errorf("%s, frame 3: %v", path, err)
		}
	}

	if _, err := FromCapture(other, 1); err == nil || !strings.Contains(err.Error(), "not Ethernet") {
		t.Errorf("another link type: %v", err)
	}

	if _, err := FromCapture("/dev/null", 1); err == nil || !strings.Contains(err.Error(), "not a capture file") {
		t.Errorf("an empty file: %v", err)
	}
}

func write(t *testing.T, path string, link layers.LinkType, frames ...[]byte) {
	t.Helper()

	var out bytes.Buffer

	w := pcapgo.NewWriter(&out)
	if err := w.WriteFileHeader(65536, link); err != nil {
		t.Fatal(err)
	}

	for _, f := range frames {
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(1, 0), CaptureLength: len(f), Length: len(f)}, f); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func writeNg(t *testing.T, path string, frames ...[]byte) {
	t.Helper()

	var out bytes.Buffer

	w, err := pcapgo.NewNgWriter(&out, layers.LinkTypeEthernet)
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range frames {
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(1, 0), CaptureLength: len(f), Length: len(f)}, f); err != nil {
			t.Fatal(err)
		}
	}

	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
