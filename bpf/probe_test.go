package bpf

import (
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSupported_namesWhatIsMissing runs on a thread that drops capabilities and ends with it.
func TestSupported_namesWhatIsMissing(t *testing.T) {
	tests := []struct {
		name string
		drop []int
		want []string
		not  []string
	}{
		{"network", []int{unix.CAP_NET_ADMIN}, []string{"CAP_NET_ADMIN"}, []string{"CAP_BPF", "CAP_PERFMON"}},
		{"BPF", []int{unix.CAP_SYS_ADMIN, unix.CAP_BPF}, []string{"CAP_BPF"}, []string{"CAP_NET_ADMIN", "CAP_PERFMON"}},
		{"all", []int{unix.CAP_SYS_ADMIN, unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_NET_ADMIN}, []string{"CAP_NET_ADMIN", "CAP_BPF", "CAP_PERFMON"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			result := make(chan error)

			go func() {
				runtime.LockOSThread() // and never unlocked: the thread ends here

				if err := dropCaps(tt.drop); err != nil {
					result <- nil
					return
				}

				result <- Supported()
			}()

			err := <-result
			if err == nil {
				t.Fatal("no error")
			}

			for _, name := range tt.want {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("%q does not name %s", err, name)
				}
			}

			for _, name := range tt.not {
				if strings.Contains(err.Error(), name) {
					t.Errorf("%q names %s", err, name)
				}
			}
		})
	}
}

// dropCaps drops capabilities of the calling thread.
func dropCaps(caps []int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}

	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}

	for _, c := range caps {
		data[c/32].Effective &^= 1 << (c % 32)
	}

	return unix.Capset(&header, &data[0])
}
