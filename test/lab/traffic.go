package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// Serve starts `ovnlab traffic serve` with these arguments on the host and waits until it listens.
// name is as for Spawn.
func (l *Lab) Serve(ctx context.Context, on, name string, args ...string) (*process.Process, error) {
	log := l.path("log/" + name + ".log")
	if err := os.Remove(log); err != nil && !isNotExist(err) {
		return nil, fmt.Errorf("serve on %s: %w", on, err)
	}

	p, err := l.Spawn(on, name, l.trafficArgv(append([]string{"serve"}, args...))...)
	if err != nil {
		return nil, fmt.Errorf("serve on %s: %w", on, err)
	}

	err = p.Await(ctx, name, func() error {
		b, err := os.ReadFile(log)
		if err == nil && !strings.HasPrefix(string(b), "ready\n") {
			err = errors.New("not listening yet")
		}

		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve on %s: %w", on, err), p.Stop(0))
	}

	return p, nil
}

// Traffic runs a client of package traffic on the host and returns its output, also with an error.
func (l *Lab) Traffic(ctx context.Context, on string, args ...string) (string, error) {
	out, err := l.Exec(ctx, on, l.trafficArgv(args)...)
	return strings.TrimSpace(string(out)), err
}

func (l *Lab) trafficArgv(args []string) []string {
	return append([]string{filepath.Join(l.opts.BinDir, labProgram), "traffic"}, args...)
}
