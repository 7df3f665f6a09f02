package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
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
