package frame

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What is written is read back, by our own reader and by tcpdump, time, length and all.
func TestWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcapng")

	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}

	frames := [][]byte{bytes.Repeat([]byte{1}, 61), append(bytes.Repeat([]byte{2}, 12), 0x88, 0xb5, 7, 7)}

	w, err := NewWriter(f, "gateway", 192)
	if err != nil {
		t.Fatal(err)
	}

	at := time.Unix(1700000000, 123456789)
	for i, b := range frames {
		if err := w.Write(at, b, len(b)+1000*i, "drop: svc_leak, from ovn"); err != nil {
			t.Fatal(err)
		}
	}

	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	if got, err := FromCapture(path, 1); err != nil || !bytes.Equal(got, frames[0]) {
		t.Errorf("frame 1: %x, %v; want %x", got, err, frames[0])
	}

	if _, err := FromCapture(path, 2); err == nil || !strings.Contains(err.Error(), "16 of its 1016 bytes") {
		t.Errorf("frame 2: %v, want that it is cut short", err)
	}

	text, err := os.ReadFile(path)
	if err != nil || bytes.Count(text, []byte("drop: svc_leak, from ovn")) != len(frames) {
		t.Errorf("comments are not there: %v", err)
	}

	out, err := exec.Command("tcpdump", "-n", "-e", "-tt", "--nano", "-r", path).CombinedOutput()
	if err != nil || strings.Count(string(out), "1700000000.123456789") != len(frames) || !strings.Contains(string(out), "length 1016") {
		t.Errorf("tcpdump: %v\n%s", err, out)
	}
}

// An ARP packet may say that its addresses have any length.
func TestDescribeShortARP(t *testing.T) {
	arp := append(bytes.Repeat([]byte{2}, 12), 0x08, 0x06, 0, 1, 8, 0, 0, 0, 0, 1)
	if got := Describe(arp); !strings.Contains(got, "ARP 1") {
		t.Error(got)
	}
}
