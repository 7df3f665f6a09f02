// Package campaign tests the product under faults and attacks for a configured time: process
// faults, a tenant with rights in one namespace, an outsider on the uplink's network. Each campaign
// is a random sequence from a seed, which it prints.
//
// A campaign returns the violations that it found, which fail its test. A second test, with a
// planted fault, fails if the campaign finds no violation. docs/reliability.md has the figures of
// the runs in results.
package campaign
