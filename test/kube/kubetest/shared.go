package kubetest

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
)

// Shared are tests that share API servers: Start takes a server that an earlier test has left, with
// its first content restored. It saves the two seconds that a server needs to start. TestMain runs
// Shared{m} in place of m. What a test starts must not write to the API server after the test's
// cleanup.
type Shared struct{ *testing.M }

// Run runs the tests.
func (s Shared) Run() int {
	idle.mu.Lock()
	idle.keep = true
	idle.mu.Unlock()

	code := s.M.Run()
	if err := idle.stop(); err != nil {
		code = max(code, 1)
		_, _ = os.Stderr.WriteString("stop shared API servers: " + err.Error() + "\n")
	}

	return code
}

// idle are the servers of this process that no test uses.
var idle pool

type pool struct {
	mu      sync.Mutex // guards all below
	keep    bool       // for the next test
	servers []*shared
}

// shared is a server that outlives a test.
type shared struct {
	*kube.Server
	dir   string
	first kube.Content
}

// take returns an idle server, or starts one.
func (p *pool) take(ctx context.Context, binary string) (*shared, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for len(p.servers) > 0 {
		s := p.servers[len(p.servers)-1]
		p.servers = p.servers[:len(p.servers)-1]

		if s.Alive() {
			return s, nil
		}

		if err := s.end(); err != nil {
			return nil, err
		}
	}

	dir, err := os.MkdirTemp("", "kube")
	if err != nil {
		return nil, err
	}

	s := &shared{dir: dir}
	if s.Server, err = kube.Start(ctx, kube.Options{Dir: dir, Binary: binary}); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}

	if s.first, err = s.Content(ctx); err != nil {
		return nil, errors.Join(err, s.end())
	}

	return s, nil
}

// leave keeps the server for another test, if its content can be restored.
func (p *pool) leave(s *shared) error {
	if !s.Alive() {
		return s.end()
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	first, err := s.Restore(ctx, s.first)
	if err != nil {
		if errors.Is(err, kube.ErrBeyond) {
			err = nil
		}

		return errors.Join(err, s.end())
	}

	s.first = first

	p.mu.Lock()
	defer p.mu.Unlock()

	p.servers = append(p.servers, s)

	return nil
}

func (p *pool) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()

	var errs []error
	for _, s := range p.servers {
		errs = append(errs, s.end())
	}

	p.servers = nil

	return errors.Join(errs...)
}

func (s *shared) end() error { return errors.Join(s.Stop(), os.RemoveAll(s.dir)) }
