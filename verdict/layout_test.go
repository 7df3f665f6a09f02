package verdict

import "testing"

func TestParseLayout(t *testing.T) {
	for _, l := range []Layout{Direct, Bridged, Dedicated} {
		if got, err := ParseLayout(l.String()); got != l || err != nil {
			t.Errorf("%s: got %s, %v", l, got, err)
		}
	}

	for _, name := range []string{"", "Direct", "routed", "layout 3"} {
		if got, err := ParseLayout(name); err == nil {
			t.Errorf("%q: got %s, want an error", name, got)
		}
	}

	if got := (Dedicated + 1).String(); got != "layout 3" {
		t.Errorf("an unknown layout is formatted %q", got)
	}
}
