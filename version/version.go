// Package version has the version of this build. The build sets it (-ldflags -X).
package version

import (
	"fmt"
	"runtime"
)

// Version is the release, or what `git describe` returns. Commit is a Git hash. Date is the time of
// that commit (RFC 3339, UTC), so that builds of one commit are equal. Commit and Date are empty in
// a build outside of a Git repository.
var (
	Version = "dev"
	Commit  string
	Date    string
)

// String returns version, commit, date, Go version and platform on one line. An empty part is
// "unknown".
func String() string {
	return fmt.Sprintf("%s (commit %s, %s, %s, %s/%s)",
		Version, known(Commit), known(Date), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Labels returns the values of the labels of ovnkube_build_info: version, commit, goversion.
func Labels() []string { return []string{Version, known(Commit), runtime.Version()} }

// known returns the text, or "unknown" if it is empty.
func known(text string) string {
	if text == "" {
		return "unknown"
	}

	return text
}
