package document

import (
	"fmt"
	"strings"
)

// Block is a fenced block of code.
type Block struct {
	Line  int      // of the opening fence, from 1
	Lines []string // as they are
}

// Blocks returns all fenced blocks of a document.
func Blocks(text string) ([]Block, error) {
	var out []Block
	inside := false
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			if inside = !inside; inside {
				out = append(out, Block{Line: number})
			}
		case inside:
			b := &out[len(out)-1]
			b.Lines = append(b.Lines, line)
		}
	}
	if inside {
		return nil, fmt.Errorf("line %d: a fence that is not closed", out[len(out)-1].Line)
	}
	return out, nil
}

// Command is what a reader types, and what the document shows of the answer.
type Command struct {
	Line   string // lines that go on in the next are one
	Output []string
}

// Commands are those of the block: every line but comments, or where some begin with "$ " those, and
// the others are their output.
func (b Block) Commands() []Command {
	const prompt = "$ "
	joined := strings.Split(strings.ReplaceAll(strings.Join(b.Lines, "\n"), "\\\n", ""), "\n")
	session := false
	for _, line := range joined {
		session = session || strings.HasPrefix(line, prompt)
	}
	var out []Command
	for _, line := range joined {
		typed, asked := strings.CutPrefix(line, prompt)
		switch {
		case strings.TrimSpace(line) == "", !session && strings.HasPrefix(line, "#"):
		case session && !asked && len(out) > 0:
			last := &out[len(out)-1]
			last.Output = append(last.Output, line)
		default:
			out = append(out, Command{Line: strings.TrimSpace(typed)})
		}
	}
	return out
}
