package platform

import (
	"io"
	"os"
	"strings"
	"testing"
)

// TestUseRefusesUnknown: a misspelt platform is refused by name, and nothing is made or changed.
func TestUseRefusesUnknown(t *testing.T) {
	cache, path := t.TempDir(), os.Getenv("PATH")
	err := Use("debian99", cache, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "no platform debian99: debian13, debian12 or host") {
		t.Errorf("error %v, want the platforms that there are", err)
	}
	if left, err := os.ReadDir(cache); err != nil || len(left) > 0 {
		t.Errorf("the cache has %v, %v", left, err)
	}
	if now := os.Getenv("PATH"); now != path {
		t.Errorf("PATH became %q", now)
	}
}
