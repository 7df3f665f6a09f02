package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Measures the first full sync of a new agent and its memory afterwards. A restart finds the tables
// written. cpu-ms/op is less affected by other processes than wall time.
func BenchmarkServices(b *testing.B) {
	r := newServingRig(b)
	r.fill()

	timed := func(b *testing.B, before, op func()) {
		var cpu time.Duration

		for b.Loop() {
			b.StopTimer()
			before()
			runtime.GC()

			was := cpuTime(b)
			b.StartTimer()
			op()

			cpu += cpuTime(b) - was
		}

		b.ReportMetric(float64(cpu.Milliseconds())/float64(b.N), "cpu-ms/op")
	}
	b.Run("fresh", func(b *testing.B) {
		timed(b, func() {
			if err := os.RemoveAll(r.dir); err != nil {
				b.Fatal(err)
			}

			r.restart(b)
		}, func() { r.sync(b) })
		b.ReportMetric(kernelBytes(b, r.dir)/(1<<20), "kernel-MiB")
	})
	b.Run("restart", func(b *testing.B) {
		timed(b, func() { r.restart(b) }, func() { r.sync(b) })
	})

	pods, all := podsEach, r.node.Addresses

	b.Run("change", func(b *testing.B) {
		timed(b, func() { pods ^= 1 }, func() {
			r.set(serviceKey(8), numbered(8, pods))
			r.sync(b)
		})
	})
	b.Run("node", func(b *testing.B) {
		timed(b, func() { r.node.Addresses = all[:2*len(all)-1-len(r.node.Addresses)] }, func() { r.sync(b) })
	})
	b.Run("plan", func(b *testing.B) {
		var held float64

		timed(b, func() {
			r.renew()

			held = heap()
		}, func() {
			if r.planChanges(r.node); !r.planned {
				b.Fatal("the cluster is not known")
			}
		})
		b.ReportMetric((heap()-held)/(1<<20), "heap-MiB")
	})
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()

	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() float64 {
	var m runtime.MemStats

	runtime.GC()
	runtime.ReadMemStats(&m)

	return float64(m.HeapAlloc)
}

// kernelBytes returns the memory that the kernel charges for the pinned maps.
func kernelBytes(b *testing.B, dir string) float64 {
	b.Helper()

	pins, err := os.ReadDir(dir)
	if err != nil {
		b.Fatal(err)
	}

	total := 0.0

	for _, pin := range pins {
		n := memlock(b, filepath.Join(dir, pin.Name()))
		b.Logf("%s: %.1f MiB", pin.Name(), n/(1<<20))
		total += n
	}

	return total
}

// memlock returns the charge of a pinned map.
func memlock(b *testing.B, pin string) float64 {
	b.Helper()

	path, err := unix.BytePtrFromString(pin)
	if err != nil {
		b.Fatal(err)
	}

	attr := struct {
		path  uint64
		fd    uint32
		flags uint32
	}{path: uint64(uintptr(unsafe.Pointer(path)))}

	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))

	runtime.KeepAlive(path)

	if errno != 0 {
		b.Fatalf("open pin %s: %v", pin, errno)
	}

	defer unix.Close(int(fd))

	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		b.Fatal(err)
	}

	for line := range strings.Lines(string(info)) {
		if rest, ok := strings.CutPrefix(line, "memlock:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(rest))
			if err != nil {
				b.Fatal(err)
			}

			return float64(n)
		}
	}

	return 0 // a link
}
