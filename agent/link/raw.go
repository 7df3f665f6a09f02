package link

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// rawFiles list the raw sockets of the calling thread's namespace. The IPv6 file may be missing.
// sock_diag is not used, because kernels may lack it for raw sockets.
var rawFiles = []string{"/proc/thread-self/net/raw", "/proc/thread-self/net/raw6"}

// RawProtos returns the protocols without ports for which the host has raw sockets, sorted and
// without duplicates. Remote is the socket's peer if it is connected, otherwise unspecified. ICMP
// is excluded, and so are sockets that only receive packets from the host itself.
func RawProtos() ([]HostProto, error) {
	var out []HostProto

	for _, path := range rawFiles {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err != nil {
			return nil, fmt.Errorf("list raw sockets: %w", err)
		}

		protos, err := readRaw(f)
		f.Close()

		if err != nil {
			return nil, fmt.Errorf("list raw sockets: read %s: %w", path, err)
		}

		out = append(out, protos...)
	}

	slices.SortFunc(out, compareProtos)

	return slices.Compact(out), nil
}

// withPorts are the protocols with ports or identifiers.
var withPorts = []uint8{
	unix.IPPROTO_TCP,
	unix.IPPROTO_UDP,
	unix.IPPROTO_SCTP,
	unix.IPPROTO_ICMP,
	unix.IPPROTO_ICMPV6,
}

// readRaw reads the format of /proc/net/raw and raw6. After a header, each line has a number, the
// local and the remote address (parseRawEnd), and more fields. The protocol is in place of the
// local port.
func readRaw(r io.Reader) ([]HostProto, error) {
	var out []HostProto

	lines := bufio.NewScanner(r)
	lines.Scan() // header line

	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 3 {
			return nil, fmt.Errorf("line %q is truncated", lines.Text())
		}

		local, proto, err := parseRawEnd(f[1])
		if err != nil {
			return nil, err
		}

		remote, _, err := parseRawEnd(f[2])
		if err != nil {
			return nil, err
		}

		if proto > 255 || slices.Contains(withPorts, uint8(proto)) || local.IsLoopback() {
			continue
		}

		out = append(out, HostProto{Remote: remote, Proto: uint8(proto)})
	}

	return out, lines.Err()
}

// parseRawEnd parses an address and a number, such as "0100007F:0059". The address consists of
// 32-bit words in host byte order.
func parseRawEnd(s string) (netip.Addr, uint16, error) {
	words, number, ok := strings.Cut(s, ":")
	n, err := strconv.ParseUint(number, 16, 16)
	b, errHex := hex.DecodeString(words)

	if !ok || err != nil || errHex != nil || len(b)%4 != 0 {
		return netip.Addr{}, 0, fmt.Errorf("parse address %q", s)
	}

	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}

	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.Addr{}, 0, fmt.Errorf("parse address %q", s)
	}

	return a, uint16(n), nil
}
