package bench

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// ReadStacks reads what bench/stacks/stacks.c wrote: for each of the guest's marks
// the instructions by call stack, as Profile has them.
func ReadStacks(r io.Reader, symbols Symbols) ([]map[string]int, error) {
	var all []map[string]int

	current := map[string]int{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)

	for lines.Scan() {
		if lines.Text() == "end" {
			all, current = append(all, current), map[string]int{}
			continue
		}

		n, addrs, err := parseStack(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("read stacks: line %q: %w", lines.Text(), err)
		}

		current[symbols.stack(addrs)] += n
	}

	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read stacks: %w", err)
	}

	if len(current) > 0 {
		return nil, errors.New("read stacks: they end without a mark")
	}

	return all, nil
}

func parseStack(line string) (n int, addrs []uint64, err error) {
	count, rest, ok := strings.Cut(line, " ")
	if !ok {
		return 0, nil, errors.New("no stack")
	}

	if n, err = strconv.Atoi(count); err != nil {
		return 0, nil, err
	}

	for word := range strings.FieldsSeq(rest) {
		addr, err := strconv.ParseUint(word, 16, 64)
		if err != nil {
			return 0, nil, err
		}

		addrs = append(addrs, addr)
	}

	return n, addrs, nil
}

// Symbols are a kernel's functions by address, with those of modules and of BPF
// programs.
type Symbols []symbol

type symbol struct {
	addr uint64
	name string // "function" or "function [module]"
}

// ParseSymbols reads the lines of a guest's /proc/kallsyms, and leaves out what is
// no code. That the kernel hides its addresses is an error.
func ParseSymbols(text string) (Symbols, error) {
	var all Symbols

	for line := range strings.Lines(text) {
		fields := strings.Fields(line) // address, kind, name, and perhaps [module]
		if len(fields) < 3 || !strings.ContainsAny(fields[1], "tTwW") {
			continue
		}

		addr, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("parse symbol %q: %w", line, err)
		}

		all = append(all, symbol{addr, strings.Join(fields[2:], " ")})
	}

	slices.SortStableFunc(all, func(a, b symbol) int { return cmp.Compare(a.addr, b.addr) })

	if len(all) == 0 || all[len(all)-1].addr == 0 {
		return nil, errors.New("read symbols: the kernel hides its addresses")
	}

	return all, nil
}

// inUser is all of what is not the kernel's.
const inUser = "user"

// stack names addresses, the innermost function first. The others are addresses
// behind a call, which may be the end of their function.
func (s Symbols) stack(addrs []uint64) string {
	names := make([]string, len(addrs))
	for i, addr := range addrs {
		if i > 0 {
			addr--
		}

		names[i] = s.name(addr)
	}

	return strings.Join(names, ";")
}

func (s Symbols) name(addr uint64) string {
	i, found := slices.BinarySearchFunc(s, addr, func(sym symbol, addr uint64) int { return cmp.Compare(sym.addr, addr) })
	if !found {
		i--
	}

	if i < 0 {
		return inUser
	}

	return s[i].name
}
