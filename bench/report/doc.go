// Package report generates the documents about the benchmark runs: the page docs/benchmarks.md
// (Page), and the figures in the prose of other documents (Prose). Begin with Documents. The
// package is pure. bench/run writes the files, and a test checks that they match the runs in
// bench/results.
package report
