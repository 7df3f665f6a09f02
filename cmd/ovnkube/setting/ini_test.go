package setting

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	text := "; a comment\n[Default]\nMTU = 1400 # behind\n\n[gateway]\nnodeport\nmode=\nnext-hop=\"192.0.2.1 \\\"; x\"\r\n[kubernetes]\napiserver=https://192.0.2.1:6443\ntokenFile=a\\\n  b"

	f, err := Parse("f", []byte(text))
	if err != nil || len(f.Problems) > 0 {
		t.Fatal(err, f.Problems)
	}

	want := []Entry{
		{Section: "default", Key: "mtu", Value: "1400", Line: 3},
		{Section: "gateway", Key: "nodeport", Blank: true, Line: 6},
		{Section: "gateway", Key: "mode", Line: 7},
		{Section: "gateway", Key: "next-hop", Value: `192.0.2.1 "; x`, Line: 8},
		{Section: "kubernetes", Key: "apiserver", Value: "https://192.0.2.1:6443", Line: 10},
		{Section: "kubernetes", Key: "tokenfile", Value: "a  b", Line: 11},
	}
	if diff := cmp.Diff(want, f.Entries); diff != "" {
		t.Error(diff)
	}
}

// FuzzParse: any text is read to its end, and no line is both accepted and reported.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"[a]\nb=c", "[a", "=\n[", "[a]\nb=\"c\nd=\\q", "[a \"b\"]\nc", "\x00[a]\n\xff=1", "a=1", "[a]\nb=c\\\nd", "[a]\nb=c\\"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse("f", []byte(text))
		if err != nil {
			return
		}

		for _, e := range file.Entries {
			if e.Line < 1 || e.Line > strings.Count(text, "\n")+1 || e.Key == "" || e.Section == "" {
				t.Errorf("entry %+v of %q", e, text)
			}

			for _, p := range file.Problems {
				if p.Where == file.where(e.Line) && strings.Count(text, "\n") > 0 && p.Message == "want [section] or key=value" {
					t.Errorf("entry %+v and problem %v of %q", e, p, text)
				}
			}
		}
	})
}
