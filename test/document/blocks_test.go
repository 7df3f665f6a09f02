package document

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBlocks(t *testing.T) {
	const text = "# a\n\n## a `b`\n```\n# on the node\none \\\n  two\n\nthree  # why\n```\n### last\n\n```sh\n$ four\nanswer\n> no input\n\n$ five <<EOF\n> a: b\n>   c\n> EOF\n```\n"

	blocks, err := Blocks(text)
	if err != nil {
		t.Fatal(err)
	}

	var (
		lines    []int
		headings []string
		commands [][]Command
	)

	for _, b := range blocks {
		lines, headings = append(lines, b.Line), append(headings, b.Heading)
		commands = append(commands, b.Commands())
	}

	if diff := cmp.Diff([]int{4, 13}, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff([]string{"a `b`", "last"}, headings); diff != "" {
		t.Errorf("headings (-want +got):\n%s", diff)
	}

	want := [][]Command{
		{{Line: "one   two"}, {Line: "three  # why"}},
		{{Line: "four", Output: []string{"answer", "> no input"}, Shown: true}, {Line: "five <<EOF\na: b\n  c\nEOF", Shown: true}},
	}
	if diff := cmp.Diff(want, commands); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}

	if _, err := Blocks("```\nx\n"); err == nil {
		t.Error("a fence that is not closed: no error")
	}
}
