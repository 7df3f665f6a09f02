package setting

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Text returns the value of a setting that is a string, and passes all checks.
func Text(p *string, checks ...func(string) error) *textValue { return &textValue{p, checks} }

// textValue and the types below are flag.Values. Their String is also called on zero values, by
// package flag.
type textValue struct {
	p      *string
	checks []func(string) error
}

func (t *textValue) String() string {
	if t == nil || t.p == nil {
		return ""
	}

	return *t.p
}

func (t *textValue) Set(s string) error {
	for _, check := range t.checks {
		if err := check(s); err != nil {
			return err
		}
	}

	*t.p = s

	return nil
}

// Choice returns the value of a setting that is one of the given words.
func Choice(p *string, words ...string) *choice { return &choice{textValue{p, nil}, words} }

type choice struct {
	textValue
	words []string
}

func (c *choice) String() string {
	if c == nil {
		return ""
	}

	return c.textValue.String()
}

func (c *choice) Set(s string) error {
	if !slices.Contains(c.words, s) {
		return fmt.Errorf("%q is not one of: %s", s, strings.Join(c.words, ", "))
	}

	return c.textValue.Set(s)
}

// Words returns the valid words.
func (c *choice) Words() []string { return c.words }

// Number returns the value of a setting that is an integer from least to most.
func Number(p *int, least, most int) *number { return &number{p, least, most} }

type number struct {
	p           *int
	least, most int
}

func (n *number) String() string {
	if n == nil || n.p == nil {
		return ""
	}

	return strconv.Itoa(*n.p)
}

// Range returns the bounds.
func (n *number) Range() (least, most int) { return n.least, n.most }

func (n *number) Set(s string) error {
	v, err := strconv.Atoi(s)
	if err != nil {
		return fmt.Errorf("%q is no number", s)
	}

	if v < n.least || v > n.most {
		return fmt.Errorf("%d is not %d..%d", v, n.least, n.most)
	}

	*n.p = v

	return nil
}

// Seconds returns the value of a setting that is a duration: whole seconds, from one second to an
// hour.
func Seconds(p *time.Duration) *seconds { return &seconds{p} }

type seconds struct{ p *time.Duration }

func (d *seconds) String() string {
	if d == nil || d.p == nil {
		return ""
	}

	return strconv.Itoa(int(*d.p / time.Second))
}

func (d *seconds) Set(s string) error {
	v := 0
	if err := Number(&v, 1, 3600).Set(s); err != nil {
		return err
	}

	*d.p = time.Duration(v) * time.Second

	return nil
}

// Switch returns the value of a setting that is a boolean.
func Switch(p *bool) *boolean { return &boolean{p} }

type boolean struct{ p *bool }

func (b *boolean) String() string {
	if b == nil || b.p == nil {
		return ""
	}

	return strconv.FormatBool(*b.p)
}

func (b *boolean) Set(s string) error {
	v, err := parseBool(s)
	if err == nil {
		*b.p = v
	}

	return err
}

// IsBoolFlag makes package flag accept the flag without a value.
func (*boolean) IsBoolFlag() bool { return true }

// parseBool accepts the words of Go's flags and of gcfg files.
func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "1", "t", "true", "yes", "on":
		return true, nil
	case "0", "f", "false", "no", "off":
		return false, nil
	}

	return false, fmt.Errorf("%q is neither true nor false", s)
}

// isBool reports whether a flag with this value needs no value on the command line.
func isBool(value any) bool {
	b, hasMethod := value.(interface{ IsBoolFlag() bool })
	return hasMethod && b.IsBoolFlag()
}
