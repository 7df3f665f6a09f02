package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
	"unicode/utf8"
)

const (
	tabColumns  = 4
	mostColumns = 120 // of a line of product code
	fillColumns = 40  // a string this long may make its line longer than mostColumns
)

// addLayout counts how the code of a product file is laid out: the lines inside functions, the blank
// ones among them, and the lines that are too long.
func (f *figures) addLayout(set *token.FileSet, file *ast.File, name, text string) {
	lines := strings.Split(text, "\n")

	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			first, last := set.Position(fn.Body.Lbrace).Line, set.Position(fn.Body.Rbrace).Line-1
			f.addBody(lines[first:max(first, last)])
		}
	}

	filled := stringLines(set, file)
	for i, line := range lines {
		if columns(line) > mostColumns && !filled[i+1] && !strings.HasPrefix(line, "//go:generate ") {
			f.tooLong = append(f.tooLong, fmt.Sprintf("%s:%d", name, i+1))
		}
	}
}

func (f *figures) addBody(lines []string) {
	for _, line := range lines {
		f.inside++

		if strings.TrimSpace(line) == "" {
			f.blank++
		}
	}
}

func columns(line string) int {
	return utf8.RuneCountInString(line) + strings.Count(line, "\t")*(tabColumns-1)
}

// stringLines returns the numbers of the lines that a string fills: one of at least fillColumns, or
// a line of a string with several lines.
func stringLines(set *token.FileSet, file *ast.File) map[int]bool {
	out := map[int]bool{}

	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}

		first, last := set.Position(lit.Pos()).Line, set.Position(lit.End()).Line
		if first == last && utf8.RuneCountInString(lit.Value) < fillColumns {
			return true
		}

		for line := first; line <= last; line++ {
			out[line] = true
		}

		return true
	})

	return out
}
