package document

import (
	"fmt"
	"strings"
)

// Block is a fenced block of code.
type Block struct {
	Line  int      // of the opening fence, from 1
	Lines []string // unmodified
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

// Command is a command in a document, with its output, if shown.
type Command struct {
	Line   string // one line, or with "> " several
	Output []string
	Shown  bool // Output is the complete output, as the block is a session
}

// Commands returns the commands of the block: every line except comments. In a block with lines
// that start with the prompt "$ ", only those are commands. Following lines with "> " continue the
// command, and the others are its output.
func (b Block) Commands() []Command {
	const prompt, more = "$ ", "> "
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
			if further, ok := strings.CutPrefix(line, more); ok && len(last.Output) == 0 {
				last.Line += "\n" + further
				continue
			}
			last.Output = append(last.Output, line)
		default:
			out = append(out, Command{Line: strings.TrimSpace(typed), Shown: session})
		}
	}
	return out
}
