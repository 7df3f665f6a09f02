package gateway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestGatewayStaysSmall checks that Gateway only composes its parts: it has few fields and methods,
// no other function takes it, and no part refers to it.
func TestGatewayStaysSmall(t *testing.T) {
	const mostMethods, mostFields = 15, 12
	if n := reflect.TypeFor[Gateway]().NumField(); n > mostFields {
		t.Errorf("Gateway has %d fields, want at most %d", n, mostFields)
	}

	set := token.NewFileSet()
	methods := 0

	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Dir(path) != "." || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}

		f, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}

		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil && isGateway(n.Recv.List[0].Type) {
					methods++
				}
			case *ast.FuncType:
				for _, p := range n.Params.List {
					if isGateway(p.Type) {
						t.Errorf("%s: a function takes a *Gateway", set.Position(p.Pos()))
					}
				}
			case *ast.StructType:
				for _, field := range n.Fields.List {
					if isGateway(field.Type) {
						t.Errorf("%s: a part has a *Gateway", set.Position(field.Pos()))
					}
				}
			}

			return true
		})

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	if methods == 0 || methods > mostMethods {
		t.Errorf("Gateway has %d methods, want at most %d", methods, mostMethods)
	}
}

func isGateway(e ast.Expr) bool {
	if star, is := e.(*ast.StarExpr); is {
		e = star.X
	}

	id, is := e.(*ast.Ident)

	return is && id.Name == "Gateway"
}
