package deploy

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHelm: what Helm itself makes of the chart is the kustomize base, as TestSame
// says by a renderer that knows only what the templates use.
func TestHelm(t *testing.T) {
	program := os.Getenv("HELM")
	if program == "" {
		t.Skip("HELM is not set: '.ci/full helm' builds it, which takes minutes")
	}
	out, err := exec.Command(program, "template", "ovn-ebpf", "helm/ovn-ebpf", "--namespace", "ovn-ebpf", "--kube-version", "1.35.0", "--api-versions", policies).Output()
	if err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			t.Fatalf("%v: %s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	const first = "---\n"
	base, helm := kustomized(t, "base"), decode(t, "helm template", out[len(first):])
	delete(base, "Namespace /ovn-ebpf")
	if diff := cmp.Diff(base, helm); diff != "" {
		t.Errorf("(-base +chart)\n%s", diff)
	}
}
