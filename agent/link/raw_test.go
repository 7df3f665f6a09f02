package link

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func rawSocket(t *testing.T, domain, proto int, bind, connect unix.Sockaddr) {
	t.Helper()

	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { unix.Close(fd) })

	if bind != nil {
		err = unix.Bind(fd, bind)
	}

	if err == nil && connect != nil {
		err = unix.Connect(fd, connect)
	}

	if err != nil {
		t.Fatal(err)
	}
}

// Every protocol of a raw socket of either family is read, except those with ports or identifiers,
// and those that no outside packet reaches.
func TestRawProtos(t *testing.T) {
	if got, err := RawProtos(); err != nil || len(got) != 0 {
		t.Errorf("without sockets: %v, error %v", got, err)
	}

	any4, any6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()

	var want []HostProto

	for proto := 1; proto < 256; proto++ {
		rawSocket(t, unix.AF_INET, proto, nil, nil)
		rawSocket(t, unix.AF_INET6, proto, nil, nil)

		if !slices.Contains([]int{1, 6, 17, 58, 132}, proto) {
			want = append(want, HostProto{any4, uint8(proto)}, HostProto{any6, uint8(proto)})
		}
	}

	rawSocket(t, unix.AF_INET, 112, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 9}})
	rawSocket(t, unix.AF_INET, 112, nil, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 9}})
	rawSocket(t, unix.AF_INET6, 89, &unix.SockaddrInet6{Addr: [16]byte{15: 1}}, nil)
	slices.SortFunc(want, compareProtos)

	if got, err := RawProtos(); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, error %v; want %v", got, err, want)
	}
}

func TestReadRaw(t *testing.T) {
	const titles = "  sl  local_address rem_address   st\n"

	got, err := readRaw(strings.NewReader(titles +
		"  112: 00000000:0070 010200C0:0000 01 00000000:00000000\n" +
		"   89: 00000000000000000000000000000000:0059 B80D0120000000000000000001000000:0000 01\n"))

	want := []HostProto{{netip.MustParseAddr("192.0.2.1"), 112}, {netip.MustParseAddr("2001:db8::1"), 89}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, error %v; want %v", got, err, want)
	}

	for _, bad := range []string{"1: 00000000:0070", "1: 0000:0070 00000000:0000", "1: 00000000 00000000:0000", "1: 0000000x:0070 00000000:0000", "1: 00000000:xx 00000000:0000"} {
		if got, err := readRaw(strings.NewReader(titles + bad + "\n")); err == nil {
			t.Errorf("%q: read as %v", bad, got)
		}
	}
}
