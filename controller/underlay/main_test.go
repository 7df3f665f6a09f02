package underlay

import (
	"os"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

func TestMain(m *testing.M) { os.Exit(tether.Main(kubetest.Shared{M: m})) }
