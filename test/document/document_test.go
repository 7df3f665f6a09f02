package document

import "testing"

func TestEmbed(t *testing.T) {
	const want = "a\n<!-- bench -->\nnew\n<!-- /bench -->\nb\n"

	for _, old := range []string{"", "old\n", "two\nlines\n"} {
		got, err := Embed("a\n<!-- bench -->\n"+old+"<!-- /bench -->\nb\n", "bench", "new\n")
		if err != nil || got != want {
			t.Errorf("Embed over %q: %q, %v", old, got, err)
		}
	}

	for _, bad := range []string{"", "<!-- bench -->\n", "<!-- /bench -->"} {
		if _, err := Embed(bad, "bench", "new\n"); err == nil {
			t.Errorf("Embed(%q): no error", bad)
		}
	}
}
