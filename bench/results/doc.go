// Package results is what one run of the benchmarks leaves: where and with what it
// ran, and what it found. A run is one file in
// Go's benchmark format, which benchstat compares; those worth keeping are in this
// directory, and the documents are made of the newest of each kind (bench/report).
package results
