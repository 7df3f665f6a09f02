package document

import (
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	const output = "NAME    READY   AGE\nweb-1   1/1     12s\nweb-2   1/1     13s\n\nend\n"
	for name, shown := range map[string][]string{
		"as it is":            {"NAME READY AGE", "web-1 1/1 12s", "web-2 1/1 13s", "end"},
		"parts left out":      {"NAME  READY  AGE", "web-… 1/1 …s", "web-…   1/1   …", "end"},
		"the end left out":    {"NAME READY AGE", "…"},
		"the rest left out":   {"NAME READY AGE", "web-1 1/1 12s", "web-2 1/1 13s", "end", "…"},
		"a beginning":         {"…", "end"},
		"the middle left out": {"NAME READY AGE", "…", "web-2…", "…", "end"},
	} {
		if err := Compare(shown, output); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	for want, shown := range map[string][]string{
		`the document shows "NAME", the output is "NAME READY AGE"`:                   {"NAME", "…"},
		`the document does not show "end"`:                                            {"NAME READY AGE", "web-1 1/1 12s", "web-2 1/1 13s"},
		`the document does not show "NAME READY AGE"`:                                 {},
		`the output ends where the document shows "more"`:                             {"NAME READY AGE", "web-1 1/1 12s", "web-2 1/1 13s", "end", "more"},
		`after "…": the output ends where the document shows "web-3…"`:                {"NAME READY AGE", "…", "web-3…"},
		`the document shows "web-. 1/1 …", the output is "web-1 1/1 12s"`:             {"NAME READY AGE", "web-. 1/1 …", "…"},
		`after "…": the output ends where the document shows "web-1 1/1 12s"`:         {"…", "web-1 1/1 12s", "end"},
		`the document shows "web-2…", the output is "web-1 1/1 12s"`:                  {"NAME READY AGE", "web-2…", "web-1…", "end"},
		`the document shows "NAME …READY AGE x", the output is "NAME READY AGE"`:      {"NAME …READY AGE x", "…"},
		`after "…": the output ends where the document shows "end of what was there"`: {"…", "end of what was there"},
	} {
		if err := Compare(shown, output); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", strings.Join(shown, " / "), err, want)
		}
	}

	if err := Compare(nil, "\n"); err != nil {
		t.Errorf("nothing shown, nothing printed: %v", err)
	}
}
