package masquerade_test

import (
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
)

func TestOf(t *testing.T) {
	for is4, want := range map[bool][4]string{
		true:  {"169.254.169.0/29", "169.254.169.1", "169.254.169.2", "169.254.169.4"},
		false: {"fd69::/125", "fd69::1", "fd69::2", "fd69::4"},
	} {
		m := masquerade.Of(is4)
		if got := [4]string{m.Subnet.String(), m.OVN.String(), m.Host.String(), m.NextHop.String()}; got != want {
			t.Errorf("Of(%v) = %v, want %v", is4, got, want)
		}
	}
}
