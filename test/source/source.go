// Package source reads the product's own Go files, for tests of rules that no linter has.
package source

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Uses returns where the product names one of an imported package's identifiers, as
// "dir/file.go:12: os.Create". Tests, the lab, the benchmark and generated models are no part of
// the product. root is the module's directory.
func Uses(t *testing.T, root, importPath string, names ...string) []string {
	t.Helper()

	var out []string

	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if rel, _ := filepath.Rel(root, path); d.IsDir() && (rel == "test" || rel == "bench" || rel == "ovsdb" || rel == "build" || strings.HasPrefix(d.Name(), ".") && rel != ".") {
			return fs.SkipDir
		}

		if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != root {
			return fs.SkipDir // another module
		}

		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}

		out = append(out, usesIn(t, root, path, importPath, names)...)

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// majorVersion ends an import path, but is not in the package's name.
var majorVersion = regexp.MustCompile(`/v[0-9]+$`)

func usesIn(t *testing.T, root, file, importPath string, names []string) []string {
	t.Helper()

	set := token.NewFileSet()

	f, err := parser.ParseFile(set, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}

	local := ""

	for _, i := range f.Imports {
		if p, _ := strconv.Unquote(i.Path.Value); p == importPath {
			local = path.Base(majorVersion.ReplaceAllString(p, ""))
			if i.Name != nil {
				local = i.Name.Name
			}
		}
	}

	if local == "" {
		return nil
	}

	var out []string

	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}

		x, ok := s.X.(*ast.Ident)
		for _, name := range names {
			if ok && x.Name == local && s.Sel.Name == name {
				rel, _ := filepath.Rel(root, file)
				out = append(out, rel+":"+strconv.Itoa(set.Position(s.Pos()).Line)+": "+local+"."+name)
			}
		}

		return true
	})

	return out
}
