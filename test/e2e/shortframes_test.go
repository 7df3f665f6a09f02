package e2e

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

// testShortcutFrames: at both ends of a connection, a frame that has bypassed OVS is the same as one
// that passed it. Only what the sender changes from packet to packet may differ.
func testShortcutFrames(t *testing.T, r *shortcutRig) {
	for _, v6 := range []bool{false, true} {
		for _, udp := range []bool{false, true} {
			for _, inward := range []bool{false, true} {
				l := r.open(t, inward, udp, v6, 50*time.Millisecond)
				r.short(t, l)
				bypassed, passed := r.framesOf(t, l), r.framesByOVS(t, l)
				compareFrames(t, l.name+", outside", bypassed.outside, passed.outside)
				compareFrames(t, l.name+", pod", bypassed.pod, passed.pod)
				l.stopped(t)
			}
		}
	}
}

// framesByOVS returns frames that have passed OVS.
func (r *shortcutRig) framesByOVS(t *testing.T, l *line) arrived {
	t.Helper()

	cancel := r.mirror(t)
	defer cancel()

	r.noShortcuts(t)
	before := r.counts(t)

	frames := r.framesOf(t, l)
	if n := r.counts(t)["out_cached"] - before["out_cached"]; n > 0 {
		t.Errorf("%s: %d packets bypassed OVS", l.name, n)
	}

	return frames
}

// arrived has the frames that have arrived at the ends of a line, by kind. A kind has one form.
type arrived struct{ outside, pod map[string]string }

func (r *shortcutRig) framesOf(t *testing.T, l *line) arrived {
	t.Helper()

	proto := "tcp"
	if l.proto == 17 {
		proto = "udp"
	}

	capture := func(on, device string, port uint16) *background {
		return r.run(t, "capture", on, "timeout", "30", "tcpdump", "-U", "-w", "-", "-c", "20", "-Q", "in", "-i", device, proto, "port", fmt.Sprint(port))
	}
	ends := []*background{capture("ext", r.ExtDevice(), l.remote.Port()), capture(r.pod.Host(), "eth0", l.pod.Port())}

	return arrived{formsOf(t, l, ends[0].wait(t)), formsOf(t, l, ends[1].wait(t))}
}

// formsOf reads a capture file.
func formsOf(t *testing.T, l *line, file string) map[string]string {
	t.Helper()

	const header, record = 24, 16

	forms := map[string]string{}

	for b := []byte(file)[min(header, len(file)):]; len(b) >= record; {
		n := int(binary.NativeEndian.Uint32(b[8:]))
		frame := b[record : record+n]
		b = b[record+n:]

		kind, form, err := formOf(frame)
		if err != nil {
			t.Errorf("%s: %v: %x", l.name, err, frame)
		}

		if was, known := forms[kind]; known && was != form {
			t.Errorf("%s: two frames of kind %s differ:\n%s\n%s", l.name, kind, was, form)
		}

		forms[kind] = form
	}

	if len(forms) == 0 {
		t.Errorf("%s: no frame was captured", l.name)
	}

	return forms
}

// formOf checks a frame's length and checksums. It returns the headers without the
// fields that differ between packets of a sender: lengths, IPv4's ID, TCP's numbers, window and options, and checksums. Frames of
// one kind have the same flags of TCP.
func formOf(frame []byte) (kind, form string, err error) {
	f := slices.Clone(frame)
	ip := f[14:]

	var (
		l4, length int
		proto      byte
		addresses  []byte
	)
	if ip[0]>>4 == 4 {
		l4, length, proto, addresses = 20, int(binary.BigEndian.Uint16(ip[2:])), ip[9], slices.Clone(ip[12:20])
		if traffic.Checksum(ip[:20]) != 0 {
			return "", "", errors.New("the checksum of IPv4 is wrong")
		}

		clear(ip[2:6])
		clear(ip[10:12])
	} else {
		l4, length, proto, addresses = 40, 40+int(binary.BigEndian.Uint16(ip[4:])), ip[6], slices.Clone(ip[8:40])
		clear(ip[4:6])
	}

	if length != len(ip) {
		return "", "", fmt.Errorf("an IP packet of %d bytes is in a frame for %d", length, len(ip))
	}

	pseudo := binary.BigEndian.AppendUint16(append(addresses, 0, proto), uint16(length-l4))

	data, header, check, flags := ip[l4:], 8, 6, byte(0)
	if proto == 6 {
		header, check, flags = 20, 16, data[13]
	}

	whole := traffic.Checksum(append(slices.Clone(pseudo), data...)) == 0
	if partial := binary.BigEndian.Uint16(data[check:]) == ^traffic.Checksum(pseudo); !whole && !partial {
		return "", "", fmt.Errorf("the checksum of protocol %d is wrong", proto)
	}

	if proto == 6 {
		clear(data[4:13]) // sequence, acknowledgement, length of options
		clear(data[14:16])
	} else {
		clear(data[4:6])
	}

	clear(data[check : check+2])

	return fmt.Sprintf("flags %#x", flags), hex.EncodeToString(f[:14+l4+header]), nil
}

func compareFrames(t *testing.T, name string, bypassed, passed map[string]string) {
	t.Helper()

	common := 0

	for _, kind := range slices.Sorted(maps.Keys(bypassed)) {
		other, both := passed[kind]
		if !both {
			continue
		}

		common++

		if bypassed[kind] != other {
			t.Errorf("%s, %s:\nbypassed %s\npassed   %s", name, kind, bypassed[kind], other)
		}
	}

	if common == 0 {
		t.Errorf("%s: no common kind in %v and %v", name, slices.Collect(maps.Keys(bypassed)), slices.Collect(maps.Keys(passed)))
	}

	t.Logf("%s: %d kinds of frames are the same", name, common)
}
