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

// ReadStacks reads the output of bench/stacks/stacks.c. It returns the instructions by call stack,
// as in Profile.Stacks, for each mark at which the plugin wrote its counts.
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

// parseStack parses a line of the plugin: the number of instructions, and the addresses of a stack
// in hexadecimal, the innermost first.
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

// Symbols are the functions of a kernel, of its modules and of BPF programs, sorted by address.
type Symbols []symbol

type symbol struct {
	addr uint64
	name string // "function" or "function [module]"
}

// ParseSymbols parses a guest's /proc/kallsyms. It omits symbols that are not code. It returns an
// error if the kernel hides its addresses.
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

// inUser is the name of all code outside of the kernel.
const inUser = "user"

// stack returns the names of the functions of a stack, the innermost first. All addresses but the
// first are return addresses. If a function ends with a call, its return address is already in the
// next function, so stack looks up the byte before.
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

// name returns the function that contains the address.
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
