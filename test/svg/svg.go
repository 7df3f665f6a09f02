// Package svg writes the elements of a picture, for documents.
package svg

import (
	"fmt"
	"html"
	"strings"
)

// Picture collects elements.
type Picture struct{ strings.Builder }

// Put adds a line.
func (p *Picture) Put(format string, args ...any) { fmt.Fprintf(&p.Builder, format+"\n", args...) }

// Text adds a text that begins at a place, unless its attributes say otherwise.
func (p *Picture) Text(x, y float64, attributes, text string) {
	p.Put(`<text x="%.1f" y="%.1f"%s>%s</text>`, x, y, attributes, html.EscapeString(text))
}
