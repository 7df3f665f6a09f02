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

// Ratio is the cost of one variant's test in terms of another.
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

// Ratios returns the ratios that the gate checks: each row of ours that CI measures, relative to a
// host without OVS if that has the test, else to Linux' flowtable; and the ratios of the bars.
func Ratios(rows []Row) []Ratio {
	var out []Ratio

	seen := map[Bar]bool{}
	add := func(b Bar) {
		b.Max, b.Want = 0, 0

		value, ok := b.Ratio(rows)
		if !ok || seen[b] {
			return
		}

		seen[b] = true
		ours, _ := Find(rows, b.Variant, b.Test, b.Family)
		base, _ := Find(rows, b.Base, b.baseTest(), b.Family)
		out = append(out, Ratio{b.Test, b.Family, b.Variant, b.Base, b.BaseTest, value, math.Hypot(ours.Spread, base.Spread)})
	}

	for _, r := range Short(rows) {
		if !slices.Contains(Ours(), r.Variant) {
			continue
		}

		b := Bar{Test: r.Test, Family: r.Family, Variant: r.Variant, Base: NoOVS}
		if r.Test == EndpointTCPCRR {
			b.BaseTest = HostTCPCRR // the same test, with the roles exchanged
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
// values. err names those missing in rows.
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

	for _, r := range b.Ratios { // in their order
		if now, ok := worse[r]; ok {
			errs = append(errs, fmt.Errorf("compare with baseline of %s: %s is %.4f, was %.4f (%+.1f %%), the limit is %.4f: find out why, or make bench-accept REASON=…",
				b.Commit, r.name(), now, r.Value, 100*(now/r.Value-1), r.Limit()))
		}
	}

	if len(worse) > 0 && len(rows) > 0 && rows[0].Kernel != b.Kernel {
		errs = append(errs, fmt.Errorf("compare with baseline: it is of Linux %s, this is %s: the kernel's own change may be all of it", b.Kernel, rows[0].Kernel))
	}

	return errors.Join(errs...)
}

func (r Ratio) name() string {
	base := r.Base
	if r.BaseTest != "" {
		base += " in " + r.BaseTest
	}

	return fmt.Sprintf("%s %s, %s / %s", r.Test, r.Family, r.Variant, base)
}

// Suspects returns the variants of missed bars and ratios, in the order of Variants; b may be nil.
func Suspects(rows []Row, bars []Bar, b *Baseline) []string {
	bad := map[string]bool{}

	for _, bar := range bars {
		if ratio, ok := bar.Ratio(rows); ok && ratio > bar.Max {
			bad[bar.Variant], bad[bar.Base] = true, true
		}
	}

	if b != nil {
		worse, _ := b.Worse(rows)
		for r := range worse {
			bad[r.Variant], bad[r.Base] = true, true
		}
	}

	return slices.DeleteFunc(AllVariants(), func(v string) bool { return !bad[v] })
}

// CheckPlanted returns an error unless the gate detects a row that was slowed down on purpose by
// about 3 %, and names it. Bars are not involved.
func (b *Baseline) CheckPlanted(rows []Row, planted Row) error {
	with := make([]Row, len(rows))
	slower := 0.0

	for i, r := range rows {
		with[i] = r
		if r.Variant == Shortcuts && r.Test == planted.Test && r.Family == planted.Family {
			with[i].Instructions = planted.Instructions
			slower = planted.Instructions/r.Instructions - 1
		}
	}

	if slower < 0.025 || slower > 0.035 {
		return fmt.Errorf("check the gate: the planted row is %.2f %% slower than its like, want 3 %%", 100*slower)
	}

	worse, _ := b.Worse(with)
	for r := range worse {
		if r.Variant == Shortcuts && r.Test == planted.Test && r.Family == planted.Family {
			return nil
		}
	}

	return fmt.Errorf("check the gate: %s %s planted %.2f %% slower was not caught", planted.Test, planted.Family, 100*slower)
}

// Accept creates a baseline from rows, of all variants or of those that CI measures. It rejects
// missed bars and missing rows.
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

	before := map[Bar]Ratio{}
	for _, r := range old.Ratios {
		before[r.bar()] = r
	}

	for _, r := range b.Ratios {
		was, ok := before[r.bar()]
		switch delete(before, r.bar()); {
		case !ok:
			fmt.Fprintf(&text, "%s: %.4f, new\n", r.name(), r.Value)
		case abs(r.Value/was.Value-1) >= 0.0005:
			fmt.Fprintf(&text, "%s: %.4f, was %.4f (%+.2f %%)\n", r.name(), r.Value, was.Value, 100*(r.Value/was.Value-1))
		}
	}

	for _, r := range old.Ratios {
		if _, ok := before[r.bar()]; ok {
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
