package report

import "fmt"

// Documents returns the new text of every document about the runs, by path; read returns the
// current text.
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

// Paths of the documents, relative to the top of the repository.
const (
	PagePath   = "docs/benchmarks.md"
	ReadmePath = "README.md"
)

// ProsePaths returns the documents with figures in sentences.
func ProsePaths() []string { return []string{ReadmePath, "docs/profile.md", "docs/shortcuts.md"} }
