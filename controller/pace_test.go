package controller_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller"
)

func TestPace(t *testing.T) {
	if _, set := os.LookupEnv("GOMAXPROCS"); set {
		t.Fatal("GOMAXPROCS is in the environment")
	}

	before := runtime.GOMAXPROCS(0)

	defer runtime.SetDefaultGOMAXPROCS()

	pace := controller.Pace()
	for _, busy := range []bool{false, true, false, true} {
		pace(busy)

		want := 1
		if busy {
			want = before
		}

		if got := runtime.GOMAXPROCS(0); got != want {
			t.Errorf("busy %v: %d processors, want %d", busy, got, want)
		}
	}

	t.Setenv("GOMAXPROCS", "2")

	if controller.Pace() != nil {
		t.Error("what GOMAXPROCS in the environment says does not stay")
	}
}
