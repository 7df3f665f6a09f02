package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// loaded is a package without its tests, with types.
type loaded struct {
	fset  *token.FileSet
	files []*ast.File
	types *types.Package
	info  *types.Info
}

// load reads the package in a directory. The types of what it imports are those of the compiler.
func load(dir string) (*loaded, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,GoFiles", ".")
	cmd.Dir, cmd.Stderr = dir, os.Stderr

	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list package %s: %w", dir, err)
	}

	exports, names := map[string]string{}, []string(nil)

	for dec := json.NewDecoder(bytes.NewReader(list)); ; {
		var p struct {
			ImportPath, Export string
			GoFiles            []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("list package %s: %w", dir, err)
		}

		exports[p.ImportPath], names = p.Export, p.GoFiles // the package itself is the last
	}

	l := &loaded{fset: token.NewFileSet(), info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}}
	for _, name := range names {
		f, err := parser.ParseFile(l.fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}

		l.files = append(l.files, f)
	}

	compiled := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }

	config := types.Config{Importer: importer.ForCompiler(l.fset, "gc", compiled)}
	if l.types, err = config.Check(dir, l.fset, l.files, l.info); err != nil {
		return nil, fmt.Errorf("check package %s: %w", dir, err)
	}

	return l, nil
}

// names returns the names of the packages that a file imports, by path.
func (l *loaded) names(f *ast.File) map[string]string {
	out := map[string]string{}

	for _, p := range l.types.Imports() {
		for _, spec := range f.Imports {
			if spec.Path.Value != `"`+p.Path()+`"` {
				continue
			}

			out[p.Path()] = p.Name()
			if spec.Name != nil {
				out[p.Path()] = spec.Name.Name
			}
		}
	}

	return out
}
