// Package history compares runs: what has changed since, and what is noise.
package history
