package report

import "fmt"

// Where the documents are, from the top of the repository.
const (
	PagePath   = "docs/benchmarks.md"
	ReadmePath = "README.md"
)

// ProsePaths are the documents with figures in their sentences.
func ProsePaths() []string { return []string{ReadmePath, "docs/profile.md"} }

// Documents returns the text of every document that shows something of the runs, by
// path; read returns what is there now.
func Documents(runs Runs, read func(path string) (string, error)) (map[string]string, error) {
	out := map[string]string{}
	out[PagePath] = Page(runs)
	for _, name := range ProsePaths() {
		text, err := read(name)
		if err != nil {
			return nil, fmt.Errorf("read document: %w", err)
		}
		if text, err = Prose(text, runs); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = text
	}
	return out, nil
}
