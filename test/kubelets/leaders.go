package kubelets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// leaders records the controllers' leadership over a time.
type leaders struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	looks int
	led   int      // observations with a leader
	terms []string // in OVN's database, in order
	errs  []error
}

// watchLeaders polls every node's controller, and the term in OVN's database, until stopped.
func (d *deployment) watchLeaders(ctx context.Context) *leaders {
	ctx, cancel := context.WithCancel(ctx)

	w := &leaders{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)

		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()

		for ctx.Err() == nil {
			w.look(ctx, d)

			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()

	return w
}

// look detects two simultaneous leaders: the first one leads before and after the second one.
func (w *leaders) look(ctx context.Context, d *deployment) {
	var lead []string

	for _, n := range d.lab.Nodes() {
		if d.leads(ctx, n.Name) {
			lead = append(lead, n.Name)
		}
	}

	two := len(lead) > 1 && d.leads(ctx, lead[0])
	term, err := d.term(ctx)

	w.mu.Lock()
	defer w.mu.Unlock()

	w.looks++
	if len(lead) > 0 {
		w.led++
	}

	if two {
		w.errs = append(w.errs, fmt.Errorf("controllers of %v lead at a time", lead))
	}

	if err != nil {
		if ctx.Err() == nil {
			w.errs = append(w.errs, err)
		}

		return
	}

	if n := len(w.terms); term != "" && (n == 0 || w.terms[n-1] != term) {
		w.terms = append(w.terms, term)
	}
}

// leads reports whether the node's controller claims to lead. A missing one does not.
func (d *deployment) leads(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	text, err := d.get(ctx, node, "http://127.0.0.1:9409/metrics")

	return err == nil && strings.Contains(text, "\novnkube_controller_leader 1\n")
}

// term returns the number and the holder of the term in OVN's database.
func (d *deployment) term(ctx context.Context) (string, error) {
	out, err := d.lab.Exec(ctx, "central", "ovn-nbctl", "--bare", "--columns=external_ids", "find", "address_set", "name=ovn-ebpf-leader")
	if err != nil {
		return "", err
	}

	ids := map[string]string{}

	for _, field := range strings.Fields(string(out)) {
		key, value, _ := strings.Cut(field, "=")
		ids[key] = value
	}

	if len(ids) == 0 {
		return "", nil
	}

	return ids["ovn-ebpf.io/term"] + " " + ids["ovn-ebpf.io/holder"], nil
}

func (w *leaders) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()

	return fmt.Sprintf("%d looks, one led at %d, terms %q", w.looks, w.led, w.terms)
}

// stop ends the watch and returns the violations.
func (w *leaders) stop() error {
	w.cancel()
	<-w.done

	last := 0

	for _, term := range w.terms {
		text, _, _ := strings.Cut(term, " ")

		number, err := strconv.Atoi(text)
		if err != nil || number <= last {
			w.errs = append(w.errs, fmt.Errorf("term %q after number %d", term, last))
		}

		last = number
	}

	if w.led == 0 {
		w.errs = append(w.errs, errors.New("no leader was seen"))
	}

	return errors.Join(w.errs...)
}

// get requests a URL from the node's network.
func (c *Cluster) get(ctx context.Context, node, url string) (string, error) {
	client, err := c.lab.Client(node)
	if err != nil {
		return "", err
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}

	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()

	text, err := io.ReadAll(answer.Body)

	return string(text), err
}
