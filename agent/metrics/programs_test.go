package metrics

import "testing"

// What the host has sent is the device's counter less OVN's, and never goes back.
func TestDerived(t *testing.T) {
	var d derived
	for i, look := range []struct {
		device, ovn uint64
		want        int64
	}{
		{1000, 400, 0}, // what was before the agent is nobody's
		{1010, 405, 5},
		{1010, 407, 5}, // OVN's are counted before the device has them
		{1012, 407, 5},
		{1020, 407, 13},
		{3, 408, 15}, // a new device
	} {
		if d.look(look.device, look.ovn, i == 0); d.shown != look.want {
			t.Errorf("look %d: %d, want %d", i, d.shown, look.want)
		}
	}
}
