// Package report makes what people read of the benchmarks' runs: the page docs/benchmarks.md, and
// the figures in the prose of other documents. It is pure; bench/run puts it into the files, and a
// test holds that they are what the runs in bench/results make of them.
package report
