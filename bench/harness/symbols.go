package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// symbols are the kernel's functions by address, with those of modules and of BPF
// programs.
type symbols []symbol

type symbol struct {
	addr uint64
	name string // "function" or "function [module]"
}

func readSymbols() (symbols, error) {
	data, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return nil, fmt.Errorf("read symbols: %w", err)
	}
	return parseSymbols(string(data))
}

// parseSymbols reads lines of kallsyms, and leaves out what is no code.
func parseSymbols(text string) (symbols, error) {
	var all symbols
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
		return nil, fmt.Errorf("read symbols: the kernel hides its addresses")
	}
	return all, nil
}

// contextMax begins what is no address but a mark, of whose the following
// addresses are: PERF_CONTEXT_MAX, -4095.
const contextMax = ^uint64(4094)

// inUser is all of what is not the kernel's.
const inUser = "user"

// stack names a chain, the innermost function first.
func (s symbols) stack(ips []uint64) string {
	var names []string
	for _, ip := range ips {
		if ip < contextMax {
			names = append(names, s.name(ip))
		}
	}
	if len(names) == 0 {
		return inUser
	}
	return strings.Join(names, ";")
}

func (s symbols) name(ip uint64) string {
	i, found := slices.BinarySearchFunc(s, ip, func(sym symbol, ip uint64) int { return cmp.Compare(sym.addr, ip) })
	if !found {
		i--
	}
	if i < 0 {
		return inUser
	}
	return s[i].name
}
