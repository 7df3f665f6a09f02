package frame

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// FromCapture returns frame number n, starting at 1, of a pcap or pcapng file.
func FromCapture(path string, n int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	frame, err := nthFrame(bufio.NewReader(f), n)
	if err != nil {
		return nil, fmt.Errorf("read frame %d of %s: %w", n, path, err)
	}

	return frame, nil
}

// nthFrame returns frame number n of a capture, starting at 1. It returns an error if the capture
// has only a part of this frame (a snap length).
func nthFrame(in *bufio.Reader, n int) ([]byte, error) {
	if n < 1 {
		return nil, fmt.Errorf("frame numbers start at 1")
	}

	packets, link, err := openCapture(in)
	if err != nil {
		return nil, err
	}

	if link != layers.LinkTypeEthernet {
		return nil, fmt.Errorf("link type is %s, not Ethernet", link)
	}

	for i := 1; ; i++ {
		data, info, err := packets.ReadPacketData()
		switch {
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("the file has only %d frames", i-1)
		case err != nil:
			return nil, err
		case i == n && info.CaptureLength < info.Length:
			return nil, fmt.Errorf("%d of its %d bytes were captured", info.CaptureLength, info.Length)
		case i == n:
			return data, nil
		}
	}
}

// openCapture returns a reader of pcap or pcapng, and the link type of the frames.
func openCapture(in *bufio.Reader) (gopacket.PacketDataSource, layers.LinkType, error) {
	magic, err := in.Peek(4)
	if err != nil {
		return nil, 0, fmt.Errorf("not a capture file: %w", err)
	}

	const sectionHeader = "\x0a\x0d\x0d\x0a" // type of the first block of a pcapng file

	if string(magic) == sectionHeader {
		r, err := pcapgo.NewNgReader(in, pcapgo.DefaultNgReaderOptions)
		if err != nil {
			return nil, 0, err
		}

		return r, r.LinkType(), nil
	}

	r, err := pcapgo.NewReader(in)
	if err != nil {
		return nil, 0, err
	}

	return r, r.LinkType(), nil
}

// Describe returns a one-line description of a frame, which may be malformed.
func Describe(frame []byte) string {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)

	var parts []string
	if l := p.LinkLayer(); l != nil {
		parts = append(parts, l.LinkFlow().String())
	}

	for _, l := range p.Layers() {
		switch l := l.(type) {
		case *layers.Dot1Q:
			parts = append(parts, fmt.Sprintf("VLAN %d", l.VLANIdentifier))
		case *layers.ARP:
			target, _ := netip.AddrFromSlice(l.DstProtAddress) // the length comes from the packet
			parts = append(parts, fmt.Sprintf("ARP %d for %s", l.Operation, target))
		case *layers.TCP:
			parts = append(parts,
				fmt.Sprintf("TCP %d->%d [%s]", l.SrcPort, l.DstPort, strings.Join(flagNames(l), ",")))
		case *layers.UDP:
			parts = append(parts, fmt.Sprintf("UDP %d->%d", l.SrcPort, l.DstPort))
		case *layers.SCTP:
			parts = append(parts, fmt.Sprintf("SCTP %d->%d", l.SrcPort, l.DstPort))
		case *layers.ICMPv4:
			parts = append(parts, "ICMP "+l.TypeCode.String())
		case *layers.ICMPv6:
			parts = append(parts, "ICMPv6 "+l.TypeCode.String())
		case gopacket.NetworkLayer: // IPv4 or IPv6: source and destination address
			parts = append(parts, l.NetworkFlow().String())
		}
	}

	return fmt.Sprintf("%s, %d bytes", strings.Join(parts, ", "), len(frame))
}

// flagNames returns the names of the flags that are set.
func flagNames(t *layers.TCP) []string {
	var out []string

	for _, f := range []struct {
		set  bool
		name string
	}{{t.SYN, "syn"}, {t.ACK, "ack"}, {t.FIN, "fin"}, {t.RST, "rst"}, {t.PSH, "psh"}} {
		if f.set {
			out = append(out, f.name)
		}
	}

	return out
}
