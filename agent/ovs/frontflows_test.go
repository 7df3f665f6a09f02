package ovs

import "testing"

// A truncated reply, or one with wrong lengths, is read as far as possible.
func FuzzParseFrontFlows(f *testing.F) {
	entry := make([]byte, 80)
	entry[1], entry[49], entry[51] = 80, 1, 22
	copy(entry[52:], "\x80\x00\x14\x01\x06\x80\x00\x18\x04\xc0\x00\x02\x01\x80\x00\x1c\x02\x00\x50")
	entry[39], entry[47] = 3, 200
	f.Add(entry)
	f.Add(entry[:60])
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, x := range parseFrontFlows(b) {
			if !x.Addr.IsValid() || x.Proto == 0 {
				t.Errorf("%+v", x)
			}
		}
	})
}
