package source

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The parts in CONTRIBUTING.md are those of .ci/run, their times add up, and the sums are within the
// budget: 22 minutes with warm caches, 45 on a new machine.
func TestBudget(t *testing.T) {
	rows := table(t, "| part | warm | cold | what |")
	if err := budget(rows); err != nil {
		t.Error(err)
	}

	want, _ := runParts(t)

	var got []string
	for _, row := range rows {
		got = append(got, row[0])
	}

	if d := cmp.Diff(append(want, "all"), got); d != "" {
		t.Errorf("parts of .ci/run (-) and rows of CONTRIBUTING.md (+): %s", d)
	}
}

// budget adds up the times of all rows but the last, which must have the sums.
func budget(rows [][]string) error {
	if len(rows) == 0 || rows[len(rows)-1][0] != "all" {
		return errors.New("the last row is not all")
	}

	var errs []error

	for column, most := range map[int]int{1: 22 * 60, 2: 45 * 60} {
		sum := 0

		for i, row := range rows {
			if len(row) != 4 {
				errs = append(errs, fmt.Errorf("row %q has %d cells, want 4", row, len(row)))
				continue
			}

			s, err := duration(row[column])
			switch last := i == len(rows)-1; {
			case err != nil:
				errs = append(errs, err)
			case !last:
				sum += s
			case s != sum:
				errs = append(errs, fmt.Errorf("column %d: all is %s, the sum is %d:%02d", column, row[column], sum/60, sum%60))
			}
		}

		if sum > most {
			errs = append(errs, fmt.Errorf("column %d: the sum is %d:%02d, at most %d:00", column, sum/60, sum%60, most/60))
		}
	}

	return errors.Join(errs...)
}

var minutes = regexp.MustCompile(`^(\d+):([0-5]\d)$`)

// duration returns the seconds of M:SS.
func duration(text string) (int, error) {
	m := minutes.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("parse time %q: want M:SS", text)
	}

	minute, err := strconv.Atoi(m[1])
	second, _ := strconv.Atoi(m[2])

	return 60*minute + second, err
}

// Mistakes that TestBudget must find.
func TestBudgetWithMistakes(t *testing.T) {
	for name, rows := range map[string][][]string{
		"no sum":       {{"test", "1:00", "2:00", ""}},
		"a wrong sum":  {{"test", "1:40", "2:00", ""}, {"lint", "0:30", "0:30", ""}, {"all", "2:00", "2:30", ""}},
		"warm over":    {{"test", "22:01", "26:00", ""}, {"all", "22:01", "26:00", ""}},
		"cold over":    {{"test", "22:00", "45:01", ""}, {"all", "22:00", "45:01", ""}},
		"no time":      {{"test", "", "2:00", ""}, {"all", "0:00", "2:00", ""}},
		"sixty":        {{"test", "0:60", "2:00", ""}, {"all", "1:00", "2:00", ""}},
		"a short row":  {{"test", "1:00", "2:00"}, {"all", "1:00", "2:00", ""}},
		"nothing":      nil,
		"hours of M:S": {{"test", "1:00:00", "2:00", ""}, {"all", "0:00", "2:00", ""}},
	} {
		if budget(rows) == nil {
			t.Errorf("%s is not found", name)
		}
	}

	if err := budget([][]string{{"test", "21:30", "44:00", ""}, {"lint", "0:30", "1:00", ""}, {"all", "22:00", "45:00", ""}}); err != nil {
		t.Error(err)
	}
}
