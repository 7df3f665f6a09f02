package setting

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/go-git/gcfg/v2/scanner"
	"github.com/go-git/gcfg/v2/token"
)

// Entry is one line of a file: a key of a section and its value.
type Entry struct {
	Section, Key string // lower case
	Value        string
	Blank        bool // the key stands alone, without "="
	Line         int
}

// File is a configuration file in the syntax of gcfg, as used by git and for ovn_k8s.conf.
type File struct {
	Path     string
	Entries  []Entry
	Sections []Entry // the headers, without key and value
	Problems []Problem
}

// ReadFile reads a file. Its syntax errors are Problems, not an error.
func ReadFile(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}

	return Parse(path, text)
}

// Parse parses text. It continues after each invalid line.
func Parse(path string, text []byte) (*File, error) {
	p := &parser{file: &File{Path: path}}

	source, err := token.NewFileSet().AddFile(path, 1, len(text))
	if err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}

	p.source = source
	if err := p.scan.Init(source, text, p.complain, 0); err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}

	for p.next(); p.tok != token.EOF; p.next() {
		p.line()
	}

	if p.broken != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, p.broken)
	}

	return p.file, nil
}

// parser holds the current token.
type parser struct {
	scan     scanner.Scanner
	source   *token.File
	file     *File
	section  string
	at       int // line of the token
	tok      token.Token
	lit      string
	reported int // last line with a reported mistake: one per line is enough
	broken   error
}

func (p *parser) next() {
	pos, tok, lit, err := p.scan.Scan()
	if err != nil {
		p.broken = errors.Join(p.broken, err)
		tok = token.EOF
	}

	p.tok, p.lit = tok, lit
	if at, err := p.source.Position(pos); err == nil {
		p.at = at.Line
	}
}

func (p *parser) complain(at token.Position, message string) { p.bad(at.Line, message) }

func (p *parser) bad(line int, message string) {
	if line == p.reported {
		return
	}

	p.reported = line
	p.file.Problems = append(p.file.Problems, Problem{Where: p.file.where(line), Message: message})
}

// rest skips the remainder of a line, which should be empty.
func (p *parser) rest(what string) {
	if p.tok != token.EOL && p.tok != token.EOF {
		p.bad(p.at, "unexpected text "+what)
	}

	for p.tok != token.EOL && p.tok != token.EOF {
		p.next()
	}
}

func (p *parser) line() {
	switch p.tok {
	case token.EOL:
	case token.LBRACK:
		p.header()
	case token.IDENT:
		p.entry()
	default:
		p.bad(p.at, "want [section] or key=value")
		p.rest("")
	}
}

func (p *parser) header() {
	line := p.at
	p.next()

	name := p.lit
	if p.tok != token.IDENT {
		p.bad(line, "want a section's name behind [")
		p.rest("")

		return
	}

	p.section = strings.ToLower(name)
	if p.next(); p.tok != token.RBRACK {
		p.bad(line, "want ] behind ["+name)
	} else {
		p.next()
	}

	p.file.Sections = append(p.file.Sections, Entry{Section: p.section, Line: line})
	p.rest("behind the section's name")
}

func (p *parser) entry() {
	e := Entry{Section: p.section, Key: strings.ToLower(p.lit), Blank: true, Line: p.at}
	p.next()

	if p.tok == token.ASSIGN {
		p.next()

		value, err := unquote(p.lit)
		if err != nil {
			p.bad(e.Line, err.Error())
		}

		e.Value, e.Blank = value, false

		p.next()
	}

	p.rest("behind the key " + e.Key + ": want = or nothing")

	switch {
	case p.reported == e.Line: // its content is unknown
	case e.Section == "":
		p.bad(e.Line, "key "+e.Key+" before the first [section]")
	default:
		p.file.Entries = append(p.file.Entries, e)
	}
}

// unquote removes the quotes and escapes that the scanner has validated.
func unquote(s string) (string, error) {
	var out strings.Builder

	quoted := false

	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && i+1 < len(s):
			i++
			escapes := map[byte]string{'n': "\n", 't': "\t", 'b': "\b", '\n': "", '\\': `\`, '"': `"`}

			plain, known := escapes[s[i]]
			if !known {
				return "", fmt.Errorf("unknown escape sequence \\%c", s[i])
			}

			out.WriteString(plain)
		default:
			out.WriteByte(s[i])
		}
	}

	if quoted {
		return "", errors.New("string not terminated")
	}

	return out.String(), nil
}

func (f *File) where(line int) string { return f.Path + ":" + strconv.Itoa(line) }
