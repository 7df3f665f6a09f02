package agent

import (
	"context"
	"encoding/json"
	"os/exec"
	"sync"
	"time"
)

// standinController plays ovn-controller in an ADD: it marks every port with a logical port as
// installed.
type standinController struct {
	db     string
	mu     sync.Mutex // guards paused, and is held while ports are marked
	paused bool
}

// startStandin starts a standinController, which ends with the test.
func (r *rig) startStandin() *standinController {
	s := &standinController{db: r.sw.Address}
	ctx, cancel := context.WithCancel(context.Background())

	ended := make(chan struct{})
	go func() {
		defer close(ended)

		for ctx.Err() == nil {
			s.mark(ctx)

			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()

	r.t.Cleanup(func() { cancel(); <-ended })

	return s
}

// pause waits until no port is being marked, and stops marking until resume.
func (s *standinController) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.paused = true
}

func (s *standinController) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.paused = false
}

func (s *standinController) mark(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.paused {
		return
	}

	vsctl := []string{"--timeout=5", "--db=" + s.db, "--no-wait"}

	out, err := exec.CommandContext(ctx, "ovs-vsctl", append(vsctl, "--format=json", "--columns=name,external_ids,ofport", "list", "Interface")...).Output()
	if err != nil {
		return // the database may be down
	}

	var table struct {
		Data [][3]json.RawMessage `json:"data"`
	}
	if json.Unmarshal(out, &table) != nil {
		return
	}

	argv := vsctl

	for _, row := range table.Data {
		var (
			name string
			ids  [2]any
		)

		var ofport int // a set while ovs-vswitchd has not created the port
		if json.Unmarshal(row[0], &name) != nil || json.Unmarshal(row[1], &ids) != nil || json.Unmarshal(row[2], &ofport) != nil || ofport <= 0 {
			continue
		}

		has := map[string]bool{}

		pairs, _ := ids[1].([]any)
		for _, p := range pairs {
			if pair, ok := p.([]any); ok && len(pair) == 2 {
				has[pair[0].(string)] = true
			}
		}

		if has["iface-id"] && !has["ovn-installed"] {
			argv = append(argv, "--", "--if-exists", "set", "Interface", name, "external_ids:ovn-installed=true")
		}
	}

	if len(argv) > len(vsctl) {
		_ = exec.CommandContext(ctx, "ovs-vsctl", argv...).Run()
	}
}
