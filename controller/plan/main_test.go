package plan

import (
	"os"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

func TestMain(m *testing.M) { os.Exit(tether.Main(m)) }
