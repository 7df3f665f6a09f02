package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"slices"
	"strings"
)

// mutant is a change of one operator. Its ID is its index in the list of all, counted from 1.
type mutant struct {
	kind string
	at   token.Position
}

// The kinds of mutants, by gremlins' names.
const (
	boundary    = "CONDITIONALS_BOUNDARY"
	negation    = "CONDITIONALS_NEGATION"
	logical     = "INVERT_LOGICAL"
	arithmetic  = "ARITHMETIC_BASE"
	bitwise     = "INVERT_BITWISE"
	negative    = "INVERT_NEGATIVES"
	increment   = "INCREMENT_DECREMENT"
	assignment  = "INVERT_ASSIGNMENTS"
	bwassign    = "INVERT_BWASSIGN"
	selfAssign  = "REMOVE_SELF_ASSIGNMENTS"
	loopControl = "INVERT_LOOPCTRL"
)

// inverse returns what an arithmetic or bitwise operator becomes, and the kind of the mutant.
func inverse(op token.Token) (token.Token, string) {
	switch op {
	case token.ADD:
		return token.SUB, arithmetic
	case token.SUB:
		return token.ADD, arithmetic
	case token.MUL:
		return token.QUO, arithmetic
	case token.QUO, token.REM:
		return token.MUL, arithmetic
	case token.AND:
		return token.OR, bitwise
	case token.OR, token.XOR, token.AND_NOT:
		return token.AND, bitwise
	case token.SHL:
		return token.SHR, bitwise
	case token.SHR:
		return token.SHL, bitwise
	}

	return token.ILLEGAL, ""
}

// instrumented is a package's source with all mutants in it.
type instrumented struct {
	mutants []mutant
	files   map[string]string // by name, on the same lines as the original
	name    string            // of the package
}

// instrument leaves out the mutants on the lines of skip, "file:line".
func instrument(pkg *loaded, skip map[string]bool) (instrumented, error) {
	out := instrumented{files: map[string]string{}, name: pkg.types.Name()}
	for _, f := range pkg.files {
		file := pkg.fset.File(f.FileStart)

		source, err := os.ReadFile(file.Name())
		if err != nil {
			return out, err
		}

		w := &writer{pkg: pkg, file: file, source: source, skip: skip, mutants: &out.mutants, names: pkg.names(f)}

		var b strings.Builder

		at := 0
		for _, d := range f.Decls {
			b.Write(source[at:w.offset(d.Pos())])
			b.WriteString(w.sourceOf(d))
			at = w.offset(d.End())
		}

		b.Write(source[at:])
		out.files[file.Name()] = b.String()
	}

	return out, nil
}

// writer writes one file. Text that it inserts has no newline, so that positions in the compiler's
// errors are those of the original.
type writer struct {
	pkg     *loaded
	file    *token.File
	source  []byte
	skip    map[string]bool
	mutants *[]mutant
	names   map[string]string // of imported packages
}

func (w *writer) offset(p token.Pos) int { return w.file.Offset(p) }

func (w *writer) original(n ast.Node) string {
	return string(w.source[w.offset(n.Pos()):w.offset(n.End())])
}

func (w *writer) add(kind string, at token.Pos) int {
	*w.mutants = append(*w.mutants, mutant{kind, w.pkg.fset.Position(at)})
	return len(*w.mutants)
}

func (w *writer) skipped(at token.Pos) bool {
	p := w.pkg.fset.Position(at)
	return w.skip[fmt.Sprintf("%s:%d", p.Filename, p.Line)]
}

// sourceOf returns a node with its mutants.
func (w *writer) sourceOf(n ast.Node) string {
	out := ""

	switch n := n.(type) {
	case *ast.FuncDecl:
		if n.Body == nil {
			return w.original(n)
		}

		return string(w.source[w.offset(n.Pos()):w.offset(n.Body.Pos())]) + w.body(n.Type, n.Body)
	case *ast.FuncLit:
		return w.original(n.Type) + " " + w.body(n.Type, n.Body)
	case *ast.GenDecl:
		if n.Tok == token.CONST || n.Tok == token.TYPE {
			return w.original(n) // must be constant
		}
	case *ast.BinaryExpr:
		out = w.binary(n)
	case *ast.UnaryExpr:
		if typ, ok := w.typeOf(n); ok && n.Op == token.SUB && !w.skipped(n.OpPos) {
			out = fmt.Sprintf("mutantOr[%s](%d, %s, func() %s { return %s })", typ, w.add(negative, n.OpPos), w.original(n), typ, w.original(n.X))
		}
	case *ast.IncDecStmt:
		if !w.skipped(n.TokPos) {
			other := map[token.Token]token.Token{token.INC: token.DEC, token.DEC: token.INC}[n.Tok]
			x := w.original(n.X)
			out = fmt.Sprintf("func() { if mutantIs(%d) { %s%s } else { %s%s } }()", w.add(increment, n.TokPos), x, other, x, n.Tok)
		}
	case *ast.AssignStmt:
		out = w.assign(n)
	case *ast.BranchStmt:
		other, ok := map[token.Token]token.Token{token.BREAK: token.CONTINUE, token.CONTINUE: token.BREAK}[n.Tok]
		if ok && !w.skipped(n.TokPos) {
			label := ""
			if n.Label != nil {
				label = " " + n.Label.Name
			}

			out = fmt.Sprintf("if mutantIs(%d) { %s%s }; %s", w.add(loopControl, n.TokPos), other, label, w.original(n))
		}
	}

	if out == "" {
		return w.whole(n)
	}

	return out
}

// body ends with a panic in functions with results: an endless loop that gets a break is no longer a
// terminating statement.
func (w *writer) body(of *ast.FuncType, body *ast.BlockStmt) string {
	text := w.whole(body)
	if of.Results == nil {
		return text
	}

	return strings.TrimSuffix(text, "}") + `;panic("the end of a mutant")}`
}

// whole returns a node that has no mutant itself.
func (w *writer) whole(n ast.Node) string {
	var children []ast.Node

	ast.Inspect(n, func(c ast.Node) bool {
		if _, comment := c.(*ast.CommentGroup); c != nil && c != n && !comment {
			children = append(children, c)
		}

		return c == n
	})
	slices.SortStableFunc(children, func(a, b ast.Node) int { return int(a.Pos() - b.Pos()) })

	var b strings.Builder

	at := w.offset(n.Pos())
	for _, c := range children {
		b.Write(w.source[at:w.offset(c.Pos())])
		b.WriteString(w.sourceOf(c))
		at = w.offset(c.End())
	}

	b.Write(w.source[at:w.offset(n.End())])

	return b.String()
}

// binary returns "" if there is no mutant.
func (w *writer) binary(n *ast.BinaryExpr) string {
	if w.skipped(n.OpPos) {
		return ""
	}

	x, y := w.original(n.X), w.original(n.Y)
	switch n.Op {
	case token.EQL, token.NEQ:
		return fmt.Sprintf("((%s %s %s) != mutantIs(%d))", w.sourceOf(n.X), n.Op, w.sourceOf(n.Y), w.add(negation, n.OpPos))
	case token.LSS, token.GTR, token.LEQ, token.GEQ:
		at, not := w.add(boundary, n.OpPos), w.add(negation, n.OpPos)
		return fmt.Sprintf("((%s %s %s) != (mutantIs(%d) || mutantIs(%d) && %s == %s))", w.sourceOf(n.X), n.Op, w.sourceOf(n.Y), not, at, x, y)
	case token.LAND:
		return fmt.Sprintf("mutantAnd(%d, %s, func() bool { return %s })", w.add(logical, n.OpPos), w.sourceOf(n.X), w.sourceOf(n.Y))
	case token.LOR:
		return fmt.Sprintf("!mutantAnd(%d, !(%s), func() bool { return !(%s) })", w.add(logical, n.OpPos), w.sourceOf(n.X), w.sourceOf(n.Y))
	}

	op, kind := inverse(n.Op)

	typ, ok := w.typeOf(n)
	if kind == "" || !ok {
		return ""
	}

	id, text := w.add(kind, n.OpPos), w.original(n)
	if w.pkg.info.Types[n].Value == nil { // a part of a constant must stay constant
		text = fmt.Sprintf("%s %s %s", w.sourceOf(n.X), n.Op, w.sourceOf(n.Y))
	}

	return fmt.Sprintf("mutantOr[%s](%d, %s, func() %s { return (%s) %s (%s) })", typ, id, text, typ, x, op, y)
}

func (w *writer) assign(n *ast.AssignStmt) string {
	if n.Tok == token.ASSIGN || n.Tok == token.DEFINE || w.skipped(n.TokPos) {
		return ""
	}

	x, y := w.original(n.Lhs[0]), w.original(n.Rhs[0])
	cases := fmt.Sprintf("case mutantIs(%d): %s = %s; ", w.add(selfAssign, n.TokPos), x, y)

	plain := n.Tok - token.ADD_ASSIGN + token.ADD
	if !isString(w.pkg.info.TypeOf(n.Lhs[0])) {
		op, _ := inverse(plain)

		kind := assignment
		if plain >= token.AND {
			kind = bwassign
		}

		cases += fmt.Sprintf("case mutantIs(%d): %s = %s %s (%s); ", w.add(kind, n.TokPos), x, x, op, y)
	}

	return fmt.Sprintf("func() { switch { %sdefault: %s %s %s } }()", cases, x, n.Tok, w.sourceOf(n.Rhs[0]))
}

// typeOf returns how the file writes the type of a number. It returns false for other types, and for
// those that the file does not import.
func (w *writer) typeOf(e ast.Expr) (string, bool) {
	t := types.Default(w.pkg.info.TypeOf(e))
	if basic, ok := t.Underlying().(*types.Basic); !ok || basic.Info()&types.IsNumeric == 0 {
		return "", false
	}

	known := true
	text := types.TypeString(t, func(p *types.Package) string {
		if p == w.pkg.types {
			return ""
		}

		name, ok := w.names[p.Path()]
		known = known && ok

		return name
	})

	return text, known
}

func isString(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsString != 0
}
