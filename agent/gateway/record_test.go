package gateway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"strconv"
	"strings"
	"testing"
)

// TestRecorder_listsEveryPart checks that a new recorder has each optional part, so that its metric
// exists before the first fault.
func TestRecorder_listsEveryPart(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "record.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}

	listed, parts := newRecorder(slog.New(slog.DiscardHandler)).read().Degraded, 0

	ast.Inspect(f, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is || !strings.HasPrefix(spec.Names[0].Name, "part") {
			return true
		}

		part, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if text, has := listed[part]; err != nil || !has || text != "" {
			t.Errorf("part %q is listed: %t, as %q, error %v", part, has, text, err)
		}

		parts++

		return true
	})

	if parts == 0 || parts != len(listed) {
		t.Errorf("%d parts are listed, %d constants found", len(listed), parts)
	}
}
