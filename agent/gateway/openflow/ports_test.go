package openflow

import (
	"fmt"
	"testing"
)

// A range is the fewest blocks, and matches each port of it and no other.
func TestPortMatches(t *testing.T) {
	for _, tt := range []struct {
		first, last uint16
		blocks      int
	}{
		{49152, 65535, 1}, {1, 30080, 20}, {32768, 40959, 1}, {50000, 50000, 1}, {1, 65535, 16}, {0, 65535, 2}, {65535, 65535, 1}, {30000, 32767, 5}, {0, 0, 1},
	} {
		t.Run(fmt.Sprint(tt.first, "-", tt.last), func(t *testing.T) {
			blocks := portMatches(tt.first, tt.last)
			if len(blocks) != tt.blocks {
				t.Errorf("%d blocks, want %d: %v", len(blocks), tt.blocks, blocks)
			}

			for port := range 1 << 16 {
				n := 0

				for _, b := range blocks {
					if uint16(port)&b.mask == b.value {
						n++
					}
				}

				in := uint16(port) >= tt.first && uint16(port) <= tt.last
				if in && n != 1 || !in && n != 0 {
					t.Fatalf("port %d is in %d blocks of %v", port, n, blocks)
				}
			}
		})
	}
}
