package underlay

import (
	"os"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

func TestMain(m *testing.M) { os.Exit(testnode.Main(kubetest.Shared{M: m})) }
