// Package campaign holds the product against what goes wrong and against people, for as long
// as it is told: process faults, a tenant with rights in one namespace, an outsider on the
// uplink's network. Each campaign is a random sequence made of a seed, which it prints.
//
// A campaign returns what it found broken. Its test fails for that, and a second test, with a
// planted fault, fails where nothing is found. docs/reliability.md has the figures of the runs
// in results.
package campaign
