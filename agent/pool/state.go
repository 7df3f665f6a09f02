package pool

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// State is the content of the agent's state file. With it and podnet's records, another process can
// rebuild the agent's Pool, and an agent can start while the API server is away.
type State struct {
	Node     string            `json:"node"`     // PoolNode of the last valid ConfigMap, or ""
	Ports    string            `json:"ports"`    // PoolPorts of the same ConfigMap
	Released map[int]time.Time `json:"released"` // by tag, of the ports that rest
}

// EncodeState returns the text of the state file, which is JSON.
func EncodeState(s State) ([]byte, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode state of pool: %w", err)
	}

	return append(b, '\n'), nil
}

// DecodeState returns the state in the text of a state file. Node is valid or empty, Ports is
// valid, and the tags of Released are between 1 and annotation.MaxTag.
func DecodeState(text []byte) (State, error) {
	var s State
	if err := json.Unmarshal(text, &s); err != nil {
		return State{}, fmt.Errorf("decode state of pool: %w", err)
	}

	if s.Node != "" {
		if _, err := annotation.ParsePool(s.Node); err != nil {
			return State{}, fmt.Errorf("decode state of pool: %w", err)
		}
	}

	if _, err := annotation.ParsePoolPorts(s.Ports); err != nil {
		return State{}, fmt.Errorf("decode state of pool: %w", err)
	}

	for tag := range s.Released {
		if tag < 1 || tag > annotation.MaxTag {
			return State{}, fmt.Errorf("decode state of pool: released: %d is not a tag", tag)
		}
	}

	return s, nil
}
