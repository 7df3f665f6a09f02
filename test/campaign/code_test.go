package campaign

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// apis are the packages of Kubernetes' types.
const (
	metaAPI = "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreAPI = "k8s.io/api/core/v1"
)

// kindsOf are the kinds whose fields a tenant can write, by package.
var kindsOf = map[string][]string{
	coreAPI: {"Service", "Pod"}, "k8s.io/api/discovery/v1": {"EndpointSlice"}, "k8s.io/api/networking/v1": {"NetworkPolicy"},
}

// product is what the code of the programs selects of Kubernetes' types.
type product struct {
	kinds []*types.Named
	// selected holds, for each type, the fields that the code selects, as paths through embedded
	// fields, and where it does.
	selected map[*types.TypeName]map[string]token.Position
	// generic are the fields of ObjectMeta that the code reads by its interface, of any kind.
	generic map[string]token.Position
}

// readProduct type-checks all packages of this module in the programs.
func readProduct(t *testing.T) *product {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Module", "./cmd/ovnkube", "./cmd/ovn-k8s-cni-overlay")
	list.Dir, list.Stderr = "../..", os.Stderr

	out, err := list.Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}

	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
		Module                  *struct{ Main bool }
	}

	var own []listed

	exports := map[string]string{}

	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("list packages: %v", err)
		}

		exports[p.ImportPath] = p.Export
		if p.Module != nil && p.Module.Main {
			own = append(own, p)
		}
	}

	fset := token.NewFileSet()
	compiled := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	c := &product{selected: map[*types.TypeName]map[string]token.Position{}, generic: map[string]token.Position{}}

	for path, names := range kindsOf {
		p, err := compiled.Import(path)
		if err != nil {
			t.Fatal(err)
		}

		for _, name := range names {
			c.kinds = append(c.kinds, p.Scope().Lookup(name).Type().(*types.Named))
		}
	}

	for _, p := range own {
		var files []*ast.File

		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}

			files = append(files, f)
		}

		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
		if _, err := (&types.Config{Importer: compiled}).Check(p.ImportPath, fset, files, info); err != nil {
			t.Fatalf("check package %s: %v", p.ImportPath, err)
		}

		for _, f := range files {
			written := assigned(f)
			ast.Inspect(f, func(n ast.Node) bool {
				if x, ok := n.(*ast.SelectorExpr); ok && !written[x] && info.Selections[x] != nil {
					c.selects(info.Selections[x], fset.Position(x.Pos()))
				}

				return true
			})
		}
	}

	return c
}

// assigned returns the expressions to which a file assigns.
func assigned(f *ast.File) map[ast.Expr]bool {
	out := map[ast.Expr]bool{}

	ast.Inspect(f, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && a.Tok == token.ASSIGN {
			for _, x := range a.Lhs {
				out[x] = true
			}
		}

		return true
	})

	return out
}

// selects records a selection: a field, perhaps of an embedded struct, or a method of ObjectMeta
// that returns a field.
func (c *product) selects(s *types.Selection, at token.Position) {
	name := s.Obj().Name()
	if s.Kind() != types.FieldVal {
		t := namedOf(s.Recv())

		field, get := strings.CutPrefix(name, "Get")
		switch of := s.Obj().Pkg(); {
		case !get || field == "ObjectMeta" || of == nil || of.Path() != metaAPI || t == nil:
		case t.Obj().Name() == "Object" && t.Obj().Pkg() == of:
			c.generic[field] = at
		default:
			c.add(t, strings.Join(append(embedded(t, s.Index()), field), "."), at)
		}

		return
	}

	if t := namedOf(s.Recv()); t != nil && strings.HasPrefix(t.Obj().Pkg().Path(), "k8s.io/") {
		c.add(t, strings.Join(append(embedded(t, s.Index()), name), "."), at)
	}
}

func (c *product) add(t *types.Named, field string, at token.Position) {
	if c.selected[t.Obj()] == nil {
		c.selected[t.Obj()] = map[string]token.Position{}
	}

	c.selected[t.Obj()][field] = at
}

// embedded returns the names of the embedded fields on the way to a promoted one.
func embedded(t *types.Named, index []int) (out []string) {
	for _, i := range index[:len(index)-1] {
		s, ok := t.Underlying().(*types.Struct)
		if !ok {
			return out
		}

		out = append(out, s.Field(i).Name())
		t = namedOf(s.Field(i).Type())
	}

	return out
}

// namedOf returns the type of values, elements or targets of a type, if it has a name and a
// package.
func namedOf(t types.Type) *types.Named {
	switch t := types.Unalias(t).(type) {
	case *types.Pointer:
		return namedOf(t.Elem())
	case *types.Slice:
		return namedOf(t.Elem())
	case *types.Map:
		return namedOf(t.Elem())
	case *types.Named:
		if t.Obj().Pkg() != nil {
			return t
		}
	}

	return nil
}

// read returns the fields that the product reads, like "Pod spec.nodeName", and where. It returns
// the innermost ones: of a struct that is handed on as a whole, the struct.
func (c *product) read() map[string]token.Position {
	out := map[string]token.Position{}
	for _, k := range c.kinds {
		c.walk(k, k.Obj().Name()+" ", nil, out)

		for field, at := range c.generic {
			if name, _, ok := resolve(k, []string{"ObjectMeta", field}); ok {
				out[k.Obj().Name()+" "+name] = at
			}
		}
	}

	return out
}

// walk reports whether the product reads any field of a struct.
func (c *product) walk(t *types.Named, path string, within []*types.Named, out map[string]token.Position) bool {
	if slices.Contains(within, t) {
		return false
	}

	found := false

	for field, at := range c.selected[t.Obj()] {
		name, inner, ok := resolve(t, strings.Split(field, "."))
		if !ok {
			continue
		}

		found = true

		if inner == nil || !c.walk(inner, path+name+".", append(within, t), out) {
			out[path+name] = at
		}
	}

	return found
}

// resolve returns the name of a field in the API, and its type if that is a struct of the API.
func resolve(t *types.Named, field []string) (name string, inner *types.Named, ok bool) {
	var names []string

	for _, f := range field {
		s, isStruct := t.Underlying().(*types.Struct)
		if !isStruct {
			return "", nil, false
		}

		for i := range s.NumFields() {
			if s.Field(i).Name() != f {
				continue
			}

			ok = true

			if n := jsonName(s.Tag(i)); n != "" {
				names = append(names, n)
			}

			inner = namedOf(s.Field(i).Type())
		}

		if !ok {
			return "", nil, false
		}

		if inner != nil {
			t = inner
		}
	}

	if inner != nil {
		_, isStruct := inner.Underlying().(*types.Struct)

		path := inner.Obj().Pkg().Path()
		if !isStruct || inner.Obj().Name() == "Time" || path != metaAPI && !strings.HasPrefix(path, "k8s.io/api/") {
			inner = nil
		}
	}

	return strings.Join(names, "."), inner, len(names) > 0
}

// jsonName returns the name in a field's tag; of an inlined field it is empty.
func jsonName(tag string) string {
	_, tag, _ = strings.Cut(tag, `json:"`)
	tag, _, _ = strings.Cut(tag, `"`)
	name, _, _ := strings.Cut(tag, ",")

	return name
}
