package cloud_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	testcloud "github.com/ovn-ebpf/ovn-ebpf/test/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

// runEnv enables the tests. They take minutes and need packages that only make test-cloud installs.
const runEnv = "OVN_EBPF_CLOUD"

// lab is the cloud of all tests; nil without runEnv.
var lab *testcloud.Cloud

func TestMain(m *testing.M) {
	if os.Getenv(runEnv) == "" {
		os.Exit(m.Run())
	}

	os.Exit(tether.Run(func() int {
		code, err := withCloud(m)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)

			code = 1
		}

		return code
	}))
}

func withCloud(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "cloud")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()

	start := time.Now()

	if lab, err = testcloud.Start(ctx, dir); err != nil {
		return 1, err
	}

	fmt.Printf("cloud started in %.0f s\n", time.Since(start).Seconds())

	code = m.Run()

	return code, lab.Close()
}

// needCloud skips the test where no cloud is wanted.
func needCloud(t *testing.T) {
	t.Helper()

	if lab == nil {
		t.Skipf("%s is not set: the tests of a cloud take minutes; make test-cloud and .ci/full have them", runEnv)
	}
}

// TestSkipsOnlyWithoutEnv: the tests of this package are skipped for no other reason.
func TestSkipsOnlyWithoutEnv(t *testing.T) {
	if want := os.Getenv(runEnv) != ""; (lab != nil) != want {
		t.Errorf("a cloud runs: %v, want %v", lab != nil, want)
	}
}
