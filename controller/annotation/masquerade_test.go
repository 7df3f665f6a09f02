package annotation_test

import (
	"errors"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

func TestMasqueradeOf(t *testing.T) {
	for is4, want := range map[bool][4]string{
		true:  {"169.254.169.0/29", "169.254.169.1", "169.254.169.2", "169.254.169.4"},
		false: {"fd69::/125", "fd69::1", "fd69::2", "fd69::4"},
	} {
		m := annotation.MasqueradeOf(is4)
		if got := [4]string{m.Subnet.String(), m.OVN.String(), m.Host.String(), m.NextHop.String()}; got != want {
			t.Errorf("MasqueradeOf(%v) = %v, want %v", is4, got, want)
		}
	}
}

func TestParseRoutablePods(t *testing.T) {
	if _, err := annotation.ParseRoutablePods(nil); !errors.Is(err, annotation.ErrNotSet) {
		t.Errorf("without the annotation: %v, want %v", err, annotation.ErrNotSet)
	}
	for text, want := range map[string]bool{"true": true, "false": false} {
		if got, err := annotation.ParseRoutablePods(map[string]string{annotation.RoutablePods: text}); got != want || err != nil {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	if _, err := annotation.ParseRoutablePods(map[string]string{annotation.RoutablePods: "yes"}); err == nil {
		t.Error(`"yes": no error`)
	}
}
