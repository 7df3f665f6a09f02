package nested_test

import (
	"os"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

func TestMain(m *testing.M) { os.Exit(testnode.Main(m)) }
