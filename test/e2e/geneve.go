package e2e

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// SeeGeneve captures on the fabric while a pod sends requests to one on the other node. It returns
// the first frames in tcpdump's format.
func (c *Cluster) SeeGeneve(ctx context.Context) (string, error) {
	dump, err := c.Command(ctx, "central", "tcpdump", "-lni", "fab0", "-c", "4", "udp port 6081")
	if err != nil {
		return "", err
	}

	var out, complaints bytes.Buffer

	ready := newLineWaiter("listening on", &complaints)

	dump.Stdout, dump.Stderr = &out, ready
	if err := dump.Start(); err != nil {
		return "", fmt.Errorf("start tcpdump: %w", err)
	}

	select {
	case <-ready.seen:
	case <-ctx.Done():
		return "", ctx.Err()
	}

	for _, path := range c.Paths() {
		if path.Name == "pod to pod, across nodes" {
			if _, err := c.Run(ctx, path, "udp", false); err != nil {
				_ = dump.Process.Kill()
				return "", err
			}
		}
	}

	if err := dump.Wait(); err != nil {
		return "", fmt.Errorf("tcpdump: %w: %s", err, complaints.String())
	}

	if !strings.Contains(out.String(), "Geneve") {
		return "", fmt.Errorf("no Geneve in the capture: %s", out.String())
	}

	return strings.TrimSpace(out.String()), nil
}

// lineWaiter is a Writer that closes seen when text has been written.
type lineWaiter struct {
	text string
	all  *bytes.Buffer
	seen chan struct{}
}

func newLineWaiter(text string, all *bytes.Buffer) *lineWaiter {
	return &lineWaiter{text: text, all: all, seen: make(chan struct{})}
}

func (w *lineWaiter) Write(b []byte) (int, error) {
	had := strings.Contains(w.all.String(), w.text)
	w.all.Write(b)

	if !had && strings.Contains(w.all.String(), w.text) {
		close(w.seen)
	}

	return len(b), nil
}
