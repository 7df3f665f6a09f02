// Command results prints what test runs recorded: for each file of events (go test -json) the number
// of tests, and then each flaky and each failed test with its assertion and the logs of its runs.
//
// A test is flaky if one of its runs failed and the last one passed.
package main
