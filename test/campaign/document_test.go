package campaign

import (
	"flag"
	"os"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/document"
)

var update = flag.Bool("update", false, "write the tables into docs/reliability.md")

// TestDocument: docs/reliability.md has the figures of the runs in results.
func TestDocument(t *testing.T) {
	texts := map[string]string{}

	for _, campaign := range []string{"faults", "kernel-faults", "api", "wire"} {
		reports, err := Load(os.DirFS("results"), campaign)
		if err != nil {
			t.Fatal(err)
		}

		texts[campaign] = Table(reports)
	}

	document.Check(t, "../../docs/reliability.md", texts, *update, "go test ./test/campaign -run TestDocument -update")
}
