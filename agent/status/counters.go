package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/ovn-ebpf/ovn-ebpf/agent/page"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Counters reads from the agent the decisions of programs or flows since its start.
func Counters(ctx context.Context, p Paths) ([]bpf.Counter, error) {
	if p.Metrics == "" {
		return nil, errors.New("ask the agent for counters: it serves no metrics")
	}
	code, body, err := get(ctx, p.url()+"/status.json")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("status %d", code)
	}
	var s page.State
	if err == nil {
		err = json.Unmarshal([]byte(body), &s)
	}
	if err == nil && s.Problem != "" {
		err = errors.New(s.Problem)
	}
	if err == nil && len(s.Counters) == 0 {
		err = errors.New("it is starting")
	}
	if err != nil {
		return nil, fmt.Errorf("ask the agent for counters: %w", err)
	}
	var out []bpf.Counter
	for _, c := range s.Counters {
		out = append(out, bpf.Counter(c))
	}
	return out, nil
}
