package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

// Ratio is the cost of a test on a variant, divided by that on another variant or of another test.
type Ratio struct {
	Test     string  `json:"test"`
	Family   string  `json:"family"`
	Variant  string  `json:"variant"`
	Base     string  `json:"base"`
	BaseTest string  `json:"base_test,omitempty"` // "": the same test
	Value    float64 `json:"ratio"`
	// Spread combines the spreads of both rows, assumed independent.
	Spread float64 `json:"spread"`
}

// bar returns the identity of the ratio: a bar without limits.
func (r Ratio) bar() Bar {
	return Bar{Test: r.Test, Family: r.Family, Variant: r.Variant, Base: r.Base, BaseTest: r.BaseTest}
}

// Limit returns the largest permitted ratio.
func (r Ratio) Limit() float64 { return r.Value * (1 + Noise(r.Spread)) }

// Noise returns the fraction by which results may differ by chance: 1.5 %, or twice the spread if
// that is more.
func Noise(spread float64) float64 { return max(0.015, 2*spread) }

// Baseline holds the accepted ratios and the reason.
type Baseline struct {
	Commit   string  `json:"commit"` // of the measured tree
	Kernel   string  `json:"kernel"`
	Platform string  `json:"platform,omitempty"` // whose Open vSwitch was measured
	Reason   string  `json:"reason"`
	Ratios   []Ratio `json:"ratios"`
}

// Ratios returns the ratios that the gate checks: those of the bars, and one for each row of this
// project that CI measures. The latter is relative to a host without OVS, or to Linux' flowtable if
// a host without OVS does not have the test. Ratios without their rows are omitted.
func Ratios(rows []Row) []Ratio {
	var out []Ratio

	seen := map[Bar]bool{}
	add := func(b Bar) {
		b.Max, b.Want = 0, 0 // the same ratio may be in several bars

		value, isMeasured := b.Ratio(rows)
		if !isMeasured || seen[b] {
			return
		}

		seen[b] = true
		ours, _ := Find(rows, b.Variant, b.Test, b.Family)
		base, _ := Find(rows, b.Base, b.baseTest(), b.Family)
		out = append(out, Ratio{
			Test: b.Test, Family: b.Family, Variant: b.Variant, Base: b.Base, BaseTest: b.BaseTest,
			Value: value, Spread: math.Hypot(ours.Spread, base.Spread),
		})
	}

	for _, r := range Short(rows) {
		if !slices.Contains(Ours(), r.Variant) {
			continue
		}

		b := Bar{Test: r.Test, Family: r.Family, Variant: r.Variant, Base: NoOVS}
		if r.Test == EndpointTCPCRR {
			b.BaseTest = HostTCPCRR // the same, but with the client outside
		} else if _, ok := Find(rows, NoOVS, r.Test, r.Family); !ok {
			b.Base = Flowtable
		}

		add(b)
	}

	for _, b := range ShortBars() {
		add(b)
	}

	return out
}

// Worse returns the ratios of the baseline that exceed their limit in rows, with their current
// values. err has an error for each ratio that is missing in rows.
func (b *Baseline) Worse(rows []Row) (worse map[Ratio]float64, err error) {
	worse = map[Ratio]float64{}

	var errs []error

	for _, r := range b.Ratios {
		now, ok := r.bar().Ratio(rows)
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("compare with baseline: %s: not measured", r.name()))
		case now > r.Limit():
			worse[r] = now
		}
	}

	return worse, errors.Join(errs...)
}

// Check returns an error for each ratio that exceeds its limit or is missing.
func (b *Baseline) Check(rows []Row) error {
	worse, err := b.Worse(rows)
	errs := []error{err}

	for _, r := range b.Ratios {
		if now, isWorse := worse[r]; isWorse {
			errs = append(errs, fmt.Errorf("compare with baseline of %s: %s is %.4f, was %.4f (%+.1f %%), the limit is %.4f: find out why, or make bench-accept REASON=…",
				b.Commit, r.name(), now, r.Value, 100*(now/r.Value-1), r.Limit()))
		}
	}

	if len(worse) > 0 && len(rows) > 0 && rows[0].Kernel != b.Kernel {
		errs = append(errs, fmt.Errorf("compare with baseline: it is of Linux %s, this is %s: the kernel's own change may be all of it", b.Kernel, rows[0].Kernel))
	}

	return errors.Join(errs...)
}

// name describes the ratio for messages.
func (r Ratio) name() string {
	base := r.Base
	if r.BaseTest != "" {
		base += " in " + r.BaseTest
	}

	return fmt.Sprintf("%s %s, %s / %s", r.Test, r.Family, r.Variant, base)
}

// Suspects returns the variants of ratios that exceed their bar, or their limit in the baseline, in
// the order of AllVariants. b may be nil.
func Suspects(rows []Row, bars []Bar, b *Baseline) []string {
	suspects := map[string]bool{}

	for _, bar := range bars {
		if ratio, ok := bar.Ratio(rows); ok && ratio > bar.Max {
			suspects[bar.Variant] = true
			suspects[bar.Base] = true
		}
	}

	if b != nil {
		worse, _ := b.Worse(rows)
		for r := range worse {
			suspects[r.Variant] = true
			suspects[r.Base] = true
		}
	}

	return slices.DeleteFunc(AllVariants(), func(v string) bool { return !suspects[v] })
}

// CheckPlanted returns an error unless the gate detects the planted row, which was slowed down on
// purpose by about 3 %, in the place of its original. It does not check bars.
func (b *Baseline) CheckPlanted(rows []Row, planted Row) error {
	changed := slices.Clone(rows)
	slower := 0.0

	for i, r := range rows {
		if r.Variant == Shortcuts && r.Test == planted.Test && r.Family == planted.Family {
			changed[i].Instructions = planted.Instructions
			slower = planted.Instructions/r.Instructions - 1
		}
	}

	if slower < 0.025 || slower > 0.035 {
		return fmt.Errorf("check the gate: the planted row is %.2f %% slower than its like, want 3 %%", 100*slower)
	}

	worse, _ := b.Worse(changed)
	for r := range worse {
		if r.Variant == Shortcuts && r.Test == planted.Test && r.Family == planted.Family {
			return nil
		}
	}

	return fmt.Errorf("check the gate: %s %s planted %.2f %% slower was not caught", planted.Test, planted.Family, 100*slower)
}

// Accept makes a baseline of rows of all variants, or of those that CI measures. If a bar is missed
// or a row is missing, it returns an error.
func Accept(rows []Row, commit, reason string) (*Baseline, error) {
	if strings.TrimSpace(reason) == "" {
		return nil, errors.New("accept baseline: no reason given")
	}

	if strings.Contains(commit, "dirty") {
		return nil, fmt.Errorf("accept baseline: measured at %s, which is no commit", commit)
	}

	bars := ShortBars()
	if len(Short(rows)) < len(rows) {
		bars = Bars()
	}

	if err := Gate(rows, bars); err != nil {
		return nil, fmt.Errorf("accept baseline: %w", err)
	}

	b := &Baseline{Commit: commit, Kernel: rows[0].Kernel, Reason: reason, Ratios: Ratios(rows)}

	return b, nil
}

// Message returns the commit message for replacing old, which may be nil, by b.
func (b *Baseline) Message(old *Baseline) string {
	var text strings.Builder
	fmt.Fprintf(&text, "bench: move the baseline\n\n%s\n\nMeasured at %s, Linux %s.\n", b.Reason, b.Commit, b.Kernel)

	if old == nil {
		return text.String()
	}

	removed := map[Bar]Ratio{} // ratios of old that are not in b
	for _, r := range old.Ratios {
		removed[r.bar()] = r
	}

	for _, r := range b.Ratios {
		earlier, isKnown := removed[r.bar()]
		delete(removed, r.bar())

		change := r.Value/earlier.Value - 1
		switch {
		case !isKnown:
			fmt.Fprintf(&text, "%s: %.4f, new\n", r.name(), r.Value)
		case abs(change) >= 0.0005: // smaller changes are only in the file
			fmt.Fprintf(&text, "%s: %.4f, was %.4f (%+.2f %%)\n", r.name(), r.Value, earlier.Value, 100*change)
		}
	}

	for _, r := range old.Ratios {
		if _, isRemoved := removed[r.bar()]; isRemoved {
			fmt.Fprintf(&text, "%s: gone, was %.4f\n", r.name(), r.Value)
		}
	}

	return text.String()
}

// Encode returns the baseline as JSON.
func (b *Baseline) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode baseline: %w", err)
	}

	return append(text, '\n'), nil
}

// ReadBaseline reads a baseline that Encode has written to a file.
func ReadBaseline(path string) (*Baseline, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read baseline: %w", err)
	}

	b, err := DecodeBaseline(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return b, nil
}

// DecodeBaseline parses the output of Encode. A baseline without ratios is an error.
func DecodeBaseline(text []byte) (*Baseline, error) {
	b := &Baseline{}
	if err := json.Unmarshal(text, b); err != nil {
		return nil, fmt.Errorf("decode baseline: %w", err)
	}

	if len(b.Ratios) == 0 {
		return nil, errors.New("decode baseline: no ratios")
	}

	return b, nil
}
