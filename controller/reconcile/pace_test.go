package reconcile

import (
	"slices"
	"testing"
	"time"
)

func TestPaceOfWork(t *testing.T) {
	var told []bool

	p := pace{reportBusy: func(busy bool) { told = append(told, busy) }}
	p.reset()
	begun := p.lastBusy

	for _, step := range []struct {
		after   time.Duration // the beginning
		waiting int
		want    []bool
	}{
		{time.Second, 1, nil}, // a full sync may be about to come
		{2 * time.Second, batchSize, nil},
		{2*time.Second + 1, 1, []bool{false}},
		{3 * time.Second, 1, nil},
		{4 * time.Second, batchSize, nil},
		{5 * time.Second, batchSize + 1, []bool{true}},
		{6 * time.Second, 1, nil},
		{7 * time.Second, 10000, nil},
		{9 * time.Second, 1, nil},
		{20 * time.Second, 0, []bool{false}},
	} {
		told = nil
		if p.update(step.waiting, begun.Add(step.after)); !slices.Equal(told, step.want) {
			t.Errorf("%v, %d wait: told %v, want %v", step.after, step.waiting, told, step.want)
		}
	}

	told = nil
	if p.reset(); !slices.Equal(told, []bool{true}) {
		t.Errorf("leading again: told %v, want that it is busy", told)
	}

	var none pace
	none.reset()
	none.update(1, time.Now().Add(time.Hour))
}
