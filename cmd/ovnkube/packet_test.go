package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/frame"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/test/document"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// Each kind of packet has exactly its own fields in JSON.
func TestPacketFields(t *testing.T) {
	macs := `"sourceMAC":"02:00:00:00:00:01","destinationMAC":"02:00:00:00:00:02",`
	spec := func(proto, src, dst string, change func(*frame.Spec)) []byte {
		s := frame.Spec{
			Proto: proto, Src: netip.MustParseAddrPort(src), Dst: netip.MustParseAddrPort(dst),
			SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2},
		}
		change(&s)

		b, err := s.Bytes()
		if err != nil {
			t.Fatal(err)
		}

		return b
	}
	as := func(*frame.Spec) {}
	tcp := spec("tcp", "192.0.2.1:1000", "192.0.2.2:80", func(s *frame.Spec) { s.Flags = []string{"syn", "ack"} })
	unreachable := slices.Concat(
		spec("icmp", "192.0.2.9:0", "192.0.2.1:0", func(s *frame.Spec) { s.ICMP = frame.ICMP{Type: 3, Code: 4} })[:14+20+8], tcp[14:])
	first := slices.Clone(tcp)
	first[20] |= 0x20
	later := slices.Clone(tcp)

	later[21] = 7
	for want, b := range map[string][]byte{
		`"protocol":"tcp","source":"192.0.2.1","sourcePort":1000,"destination":"192.0.2.2","destinationPort":80,"tcpFlags":["syn","ack"]`: tcp,
		`"vlan":7,"protocol":"udp","source":"2001:db8::1","sourcePort":1000,"destination":"2001:db8::2","destinationPort":53`:             spec("udp", "[2001:db8::1]:1000", "[2001:db8::2]:53", func(s *frame.Spec) { s.VLAN = 7 }),
		`"protocol":"sctp","source":"192.0.2.1","sourcePort":1000,"destination":"192.0.2.2","destinationPort":53`:                         spec("sctp", "192.0.2.1:1000", "192.0.2.2:53", as),
		`"protocol":"icmp","source":"192.0.2.1","destination":"192.0.2.2","icmpType":8,"icmpCode":0,"icmpID":9`: spec("icmp", "192.0.2.1:0", "192.0.2.2:0", func(s *frame.Spec) {
			s.ICMP = frame.ICMP{Type: 8, ID: 9}
		}),
		`"protocol":"icmp6","source":"2001:db8::1","destination":"2001:db8::2","icmpType":129,"icmpCode":0,"icmpID":9`: spec("icmp", "[2001:db8::1]:0", "[2001:db8::2]:0", func(s *frame.Spec) {
			s.ICMP = frame.ICMP{Type: 129, ID: 9}
		}),
		`"protocol":"icmp","source":"192.0.2.9","destination":"192.0.2.1","icmpType":3,"icmpCode":4,"quoted":{"protocol":"tcp","source":"192.0.2.1","sourcePort":1000,"destination":"192.0.2.2","destinationPort":80}`: unreachable,
		`"protocol":"47","source":"192.0.2.1","destination":"192.0.2.2"`:                                                                                     spec("47", "192.0.2.1:0", "192.0.2.2:0", as),
		`"protocol":"arp","source":"192.0.2.1","destination":"192.0.2.2"`:                                                                                    spec("arp", "192.0.2.1:0", "192.0.2.2:0", as),
		`"protocol":"tcp","source":"192.0.2.1","sourcePort":1000,"destination":"192.0.2.2","destinationPort":80,"tcpFlags":["syn","ack"],"fragment":"first"`: first,
		`"protocol":"tcp","source":"192.0.2.1","destination":"192.0.2.2","fragment":"later"`:                                                                 later,
		`"protocol":"0x88cc"`: append(slices.Clone(tcp[:12]), 0x88, 0xcc),
	} {
		got, err := json.Marshal(fieldsOf(b))
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff("{"+macs+want+"}", string(got)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// Frames of the corpus, truncated anywhere, do not crash the program.
func TestPacketFieldsOfCorpus(t *testing.T) {
	for _, c := range corpus.Cases() {
		for n := range len(c.Frame) {
			if _, err := json.Marshal(fieldsOf(c.Frame[:n])); err != nil {
				t.Fatalf("%s, %d bytes: %v", c.Name, n, err)
			}
		}
	}
}

// The pod of a connection is found in both directions, whether its source, its destination or both
// are translated. Ambiguous tuples of two pods are omitted.
func TestTrackedPods(t *testing.T) {
	at := netip.MustParseAddrPort
	connection := func(src, dst, replySrc, replyDst string) ovs.TrackedConnection {
		return ovs.TrackedConnection{Proto: 6, Original: ovs.Tuple{Src: at(src), Dst: at(dst)}, Reply: ovs.Tuple{Src: at(replySrc), Dst: at(replyDst)}}
	}

	got := trackedPods([]ovs.TrackedConnection{
		connection("10.244.1.5:1000", "198.51.100.1:80", "198.51.100.1:80", "172.30.0.11:50000"),   // SNAT
		connection("198.51.100.1:2000", "172.30.0.11:30080", "10.244.1.6:80", "198.51.100.1:2000"), // NodePort
		connection("198.51.100.1:3000", "172.30.0.11:30080", "10.244.2.7:80", "100.64.0.2:3000"),   // with a hidden client
		connection("172.30.0.11:4000", "172.30.0.1:6443", "172.30.0.1:6443", "172.30.0.11:4000"),   // from the host itself
		{Proto: 1, Original: ovs.Tuple{Src: at("10.244.1.5:0"), Dst: at("198.51.100.1:0")}, Reply: ovs.Tuple{Src: at("198.51.100.1:0"), Dst: at("172.30.0.11:0")}},
		{Proto: 1, Original: ovs.Tuple{Src: at("10.244.1.6:0"), Dst: at("198.51.100.1:0")}, Reply: ovs.Tuple{Src: at("198.51.100.1:0"), Dst: at("172.30.0.11:0")}},
	})
	for want, of := range map[string][2]string{
		"10.244.1.5": {"198.51.100.1:80", "172.30.0.11:50000"},
		"10.244.1.6": {"198.51.100.1:2000", "172.30.0.11:30080"},
		"10.244.2.7": {"198.51.100.1:3000", "172.30.0.11:30080"},
		"":           {"172.30.0.11:4000", "172.30.0.1:6443"},
	} {
		for _, tu := range []tuple{{6, at(of[0]), at(of[1])}, {6, at(of[1]), at(of[0])}} {
			if pod := got[tu]; pod.IsValid() != (want != "") || want != "" && pod.String() != want {
				t.Errorf("%v: %s, want %q", tu, pod, want)
			}
		}
	}

	if pod := got[tuple{1, at("198.51.100.1:0"), at("172.30.0.11:0")}]; pod.IsValid() {
		t.Errorf("ambiguous ping resolved to %s", pod)
	}
}

// The tables of fields in the documents match the printed types.
func TestDocumentFields(t *testing.T) {
	const command = "go test ./cmd/ovnkube -run TestDocumentFields -update"
	document.Check(t, "../../docs/monitor.md", map[string]string{"fields": fieldTable(t, reflect.TypeFor[decision](), nil)}, *update, command)
	document.Check(t, "../../docs/explain.md", map[string]string{
		"fields": fieldTable(t, reflect.TypeFor[answer](), reflect.TypeFor[packetFields]()), "steps": fieldTable(t, reflect.TypeFor[step](), nil),
	}, *update, command)
}

// fieldTable returns a table row for each field of the type and its embedded types, except without.
func fieldTable(t *testing.T, of, without reflect.Type) string {
	t.Helper()

	out := "| field | meaning |\n|---|---|\n"

	for _, f := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous || !f.IsExported():
			continue
		case len(f.Index) > 1 && of.Field(f.Index[0]).Type == without:
			continue
		}

		doc := f.Tag.Get("doc")
		if name == "" || doc == "" {
			t.Errorf("%s.%s has no name or no description", of, f.Name)
		}

		out += fmt.Sprintf("| `%s` | %s |\n", name, doc)
	}

	return out
}
