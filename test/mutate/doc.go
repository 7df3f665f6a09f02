// Command mutate finds changes of a package's code that no test of the package notices.
//
// It compiles all changes of a package into one test binary. The environment chooses the one that is
// active, so that a change costs a run of the tests that reach it, and no build. docs/mutation.md
// explains its use and lists the changes that are accepted.
package main
