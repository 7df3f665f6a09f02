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

// name returns the section and the key, for messages.
func (e Entry) name() string { return "[" + e.Section + "] " + e.Key }

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

// Parse parses text. Invalid lines are Problems of the File, and parsing continues after them. An
// error is one of the scanner itself.
func Parse(path string, text []byte) (*File, error) {
	p := &parser{file: &File{Path: path}}

	source, err := token.NewFileSet().AddFile(path, 1, len(text))
	if err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}

	p.source = source
	if err := p.scanner.Init(source, text, p.reportAt, 0); err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}

	for p.next(); p.tok != token.EOF; p.next() {
		p.parseLine()
	}

	if p.errScan != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, p.errScan)
	}

	return p.file, nil
}

// parser adds the content of a text to a File.
type parser struct {
	scanner scanner.Scanner
	source  *token.File // the scanner's record of lines
	file    *File
	section string // of the following entries
	errScan error  // the scanner itself failed

	// The current token.
	tok     token.Token
	literal string
	line    int

	reportedLine int // the last line with a reported mistake: one per line is enough
}

// next reads the next token. After an error of the scanner, it is the end of the file.
func (p *parser) next() {
	position, tok, literal, err := p.scanner.Scan()
	if err != nil {
		p.errScan = errors.Join(p.errScan, err)
		tok = token.EOF
	}

	p.tok, p.literal = tok, literal
	if at, err := p.source.Position(position); err == nil {
		p.line = at.Line
	}
}

// reportAt is called by the scanner for invalid text.
func (p *parser) reportAt(at token.Position, message string) { p.report(at.Line, message) }

func (p *parser) report(line int, message string) {
	if line == p.reportedLine {
		return
	}

	p.reportedLine = line
	p.file.Problems = append(p.file.Problems, Problem{Where: p.file.where(line), Message: message})
}

// skipLine skips the rest of the line. Unless it is empty, it is a mistake: unexpected text in a
// place.
func (p *parser) skipLine(place string) {
	if p.tok != token.EOL && p.tok != token.EOF {
		p.report(p.line, "unexpected text "+place)
	}

	for p.tok != token.EOL && p.tok != token.EOF {
		p.next()
	}
}

// parseLine parses one line, up to its end.
func (p *parser) parseLine() {
	switch p.tok {
	case token.EOL:
	case token.LBRACK:
		p.parseHeader()
	case token.IDENT:
		p.parseEntry()
	default:
		p.report(p.line, "want [section] or key=value")
		p.skipLine("")
	}
}

// parseHeader parses [section].
func (p *parser) parseHeader() {
	line := p.line
	p.next()

	name := p.literal
	if p.tok != token.IDENT {
		p.report(line, "want a section's name behind [")
		p.skipLine("")

		return
	}

	p.section = strings.ToLower(name)
	if p.next(); p.tok != token.RBRACK {
		p.report(line, "want ] behind ["+name)
	} else {
		p.next()
	}

	p.file.Sections = append(p.file.Sections, Entry{Section: p.section, Line: line})
	p.skipLine("behind the section's name")
}

// parseEntry parses a key with or without a value.
func (p *parser) parseEntry() {
	e := Entry{Section: p.section, Key: strings.ToLower(p.literal), Blank: true, Line: p.line}
	p.next()

	if p.tok == token.ASSIGN {
		p.next()

		value, err := unquote(p.literal)
		if err != nil {
			p.report(e.Line, err.Error())
		}

		e.Value, e.Blank = value, false

		p.next()
	}

	p.skipLine("behind the key " + e.Key + ": want = or nothing")

	switch {
	case p.reportedLine == e.Line: // the entry is not understood
	case e.Section == "":
		p.report(e.Line, "key "+e.Key+" before the first [section]")
	default:
		p.file.Entries = append(p.file.Entries, e)
	}
}

// unquote removes the quotes and replaces the escape sequences.
func unquote(s string) (string, error) {
	var out strings.Builder

	isQuoted := false

	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			isQuoted = !isQuoted
		case s[i] == '\\' && i+1 < len(s):
			i++
			// A backslash before the end of a line continues the value in the next line.
			escapes := map[byte]string{'n': "\n", 't': "\t", 'b': "\b", '\n': "", '\\': `\`, '"': `"`}

			plain, isKnown := escapes[s[i]]
			if !isKnown {
				return "", fmt.Errorf("unknown escape sequence \\%c", s[i])
			}

			out.WriteString(plain)
		default:
			out.WriteByte(s[i])
		}
	}

	if isQuoted {
		return "", errors.New("string not terminated")
	}

	return out.String(), nil
}

// where returns the place of a line, for messages.
func (f *File) where(line int) string { return f.Path + ":" + strconv.Itoa(line) }
