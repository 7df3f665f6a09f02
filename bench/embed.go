package bench

import (
	"errors"
	"strings"
)

const embedBegin, embedEnd = "<!-- bench -->\n", "<!-- /bench -->"

// Embed puts text between the marks of a Markdown document, in place of what
// was there, so that figures are never typed.
func Embed(document, text string) (string, error) {
	before, rest, begins := strings.Cut(document, embedBegin)
	_, after, ends := strings.Cut(rest, embedEnd)
	if !begins || !ends {
		return "", errors.New("embed table: no marks <!-- bench --> and <!-- /bench -->")
	}
	return before + embedBegin + text + embedEnd + after, nil
}
