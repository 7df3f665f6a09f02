// Package results defines the record of a benchmark run: machine, versions and results. A run is
// one file in Go's benchmark format, for comparison by benchstat. This directory contains the runs
// worth keeping. The documents are generated from the newest run of each kind (bench/report).
package results
