package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	samplePeriod = 20011 // instructions
	ringPages    = 1 << 12
	// What takes a hundredth of the instructions is known to a tenth of itself.
	profileBatches = 41
)

// profile says where the instructions of a test go: it runs the test once more
// while the kernel's clock, which counts instructions here, samples call stacks.
// What taking a sample costs is not sampled itself: it runs with interrupts off.
func (m measurement) profile(ctx context.Context, t test) (stacks map[string]int, err error) {
	err = inNetns(t.ends().client, func() error {
		op, stop, err := open(t)
		if err != nil {
			return err
		}
		defer stop()
		s, err := newSampler()
		if err != nil {
			return err
		}
		defer s.close()
		size, warm := t.batchSize(), t.warmUp()
		var taken [][]uint64
		for b := range warm + profileBatches {
			if err := s.during(func() error {
				for i := range size {
					pause(rand.Int64N(samplePeriod))
					if err := op(i % t.flowNumber()); err != nil {
						return fmt.Errorf("batch %d, operation %d: %w", b, i, err)
					}
				}
				return ctx.Err()
			}); err != nil {
				return err
			}
			if chains := s.read(); b >= warm {
				taken = append(taken, chains...)
			}
		}
		if s.lost > 0 {
			return fmt.Errorf("take samples: %d lost", s.lost)
		}
		stacks, err = fold(taken)
		return err
	})
	return stacks, err
}

// pause does nothing for so many instructions. Of random length before each
// operation, it keeps samples and operations out of step: samples that come at a
// distance of their own would meet the same few places of each.
func pause(instructions int64) {
	for start := tsc(); tsc()-start < instructions; {
	}
}

// fold counts equal stacks under the names of their functions, the innermost
// first, without what is not the kernel's: the pauses, and next to nothing else.
func fold(taken [][]uint64) (map[string]int, error) {
	symbols, err := readSymbols()
	if err != nil {
		return nil, err
	}
	stacks := map[string]int{}
	for _, ips := range taken {
		if stack := symbols.stack(ips); stack != inUser {
			stacks[stack]++
		}
	}
	return stacks, nil
}

// sampler is a perf event of the only CPU with its ring buffer.
type sampler struct {
	fd   int
	ring []byte
	lost uint64
}

func newSampler() (*sampler, error) {
	// The kernel would take fewer samples if taking them is slow.
	if err := os.WriteFile("/proc/sys/kernel/perf_cpu_time_max_percent", []byte("0"), 0); err != nil {
		return nil, fmt.Errorf("allow samples: %w", err)
	}
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: samplePeriod, Sample_type: unix.PERF_SAMPLE_CALLCHAIN,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeCallchainUser,
	}, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open perf event: %w", err)
	}
	ring, err := unix.Mmap(fd, 0, (1+ringPages)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("map perf buffer: %w", err)
	}
	return &sampler{fd: fd, ring: ring}, nil
}

func (s *sampler) close() {
	_ = unix.Munmap(s.ring)
	unix.Close(s.fd)
}

// during takes samples while f runs.
func (s *sampler) during(f func() error) error {
	if err := unix.IoctlSetInt(s.fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return fmt.Errorf("enable perf event: %w", err)
	}
	return errors.Join(f(), unix.IoctlSetInt(s.fd, unix.PERF_EVENT_IOC_DISABLE, 0))
}

// read empties the buffer and returns the call chains in it, with the kernel's
// marks between contexts.
func (s *sampler) read() [][]uint64 {
	const lost, sample, headerLen = 2, 9, 8
	page := (*unix.PerfEventMmapPage)(unsafe.Pointer(unsafe.SliceData(s.ring)))
	data := s.ring[os.Getpagesize():]
	at := func(pos uint64) byte { return data[pos%uint64(len(data))] }
	word := func(pos uint64) uint64 {
		var b [8]byte
		for i := range b {
			b[i] = at(pos + uint64(i))
		}
		return binary.NativeEndian.Uint64(b[:])
	}
	var chains [][]uint64
	pos, head := page.Data_tail, atomic.LoadUint64(&page.Data_head)
	for pos < head {
		header := word(pos) // type: 32 bits, misc: 16, size: 16
		switch uint32(header) {
		case sample:
			ips := make([]uint64, word(pos+headerLen))
			for i := range ips {
				ips[i] = word(pos + headerLen + 8 + 8*uint64(i))
			}
			chains = append(chains, ips)
		case lost:
			s.lost += word(pos + headerLen + 8)
		}
		pos += header >> 48
	}
	atomic.StoreUint64(&page.Data_tail, head)
	return chains
}
