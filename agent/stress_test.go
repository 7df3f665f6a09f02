package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// agentEnv holds a configuration with which the test binary runs the agent.
const agentEnv = "OVNEBPF_TEST_AGENT"

// runAgent is the process that TestStress kills and BenchmarkMemory measures.
func runAgent(config string) error {
	cfg := valid()
	cfg.RestConfig = nil

	var api elsewhere
	if err := errors.Join(json.Unmarshal([]byte(config), &cfg), json.Unmarshal([]byte(config), &api)); err != nil {
		return err
	}

	cfg.RestConfig = &rest.Config{Host: api.Host, BearerToken: api.Token, TLSClientConfig: api.TLS}

	return Run(context.Background(), cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// process starts an agent process, which ends with the test node.
func (r *rig) process() *exec.Cmd {
	r.t.Helper()
	api := r.cfg.RestConfig
	cfg := r.cfg
	cfg.RestConfig = nil
	parts := map[string]any{}

	for _, part := range []any{cfg, map[string]any{"Host": api.Host, "Token": api.BearerToken, "TLS": api.TLSClientConfig}} {
		b, err := json.Marshal(part)
		if err == nil {
			err = json.Unmarshal(b, &parts)
		}

		if err != nil {
			r.t.Fatal(err)
		}
	}

	b, err := json.Marshal(parts)
	if err != nil {
		r.t.Fatal(err)
	}

	cmd := exec.Command("/proc/self/exe", "-test.run", "none")

	cmd.Env = append(os.Environ(), agentEnv+"="+string(b))

	cmd.Stdout, cmd.Stderr = r.t.Output(), r.t.Output()
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}

	return cmd
}

// TestStress adds and deletes pods concurrently while the agent is killed at random. Failed
// requests are repeated, as by a kubelet. Afterwards all added pods must answer an older pod over
// both families, and deleted pods must leave no parts.
func TestStress(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: .ci/full has it, part packages")
	}

	const pods, rounds, kills = 200, 10, 3

	r := newCNIRig(t)
	agent := r.process()

	t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
	r.getReady()
	all, addresses := r.answering("stress", pods)
	probe := r.sandbox(r.createPod("probe"), "c-probe")
	r.giveBoth(probe.pod, 254)

	list := r.network("1.0.0", "")
	if err := <-r.add(t.Context(), list, probe); err != nil {
		t.Fatal(err)
	}

	r.forward()

	seed := randomtest.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))

	for round := range rounds {
		all = renew(all, round)

		for _, step := range []struct {
			command func(*libcni.CNIConfig, *libcni.RuntimeConf) error
			then    func()
		}{
			{func(c *libcni.CNIConfig, rt *libcni.RuntimeConf) error {
				_, err := c.AddNetworkList(t.Context(), list, rt)
				return err
			}, func() { r.mustAnswer(probe, addresses) }},
			{func(c *libcni.CNIConfig, rt *libcni.RuntimeConf) error {
				return c.DelNetworkList(t.Context(), list, rt)
			}, func() { r.mustHold(probe) }},
		} {
			ended := make(chan error, 1)
			go func() {
				ended <- r.forAll(all, func(s sandbox) error { return step.command(r.runtime("cache"), s.RuntimeConf) })
			}()

			for range kills {
				time.Sleep(time.Duration(random.IntN(5*pods)) * time.Millisecond)

				if err := agent.Process.Kill(); err != nil {
					t.Fatal(err)
				}

				_ = agent.Wait()
				agent = r.process()
			}

			if err := <-ended; err != nil {
				t.Fatalf("round %d: %v", round, err)
			}

			r.awaitMissing("")
			step.then()
		}
	}
	// Some pods stay and must keep working.
	all = renew(all, rounds)

	keep := slices.Clone(all[:pods/4])
	if err := r.forAll(all, func(s sandbox) error {
		_, err := r.runtime("cache").AddNetworkList(t.Context(), list, s.RuntimeConf)
		return err
	}); err != nil {
		t.Fatal(err)
	}

	if err := r.forAll(all[len(keep):], func(s sandbox) error { return r.runtime("cache").DelNetworkList(t.Context(), list, s.RuntimeConf) }); err != nil {
		t.Fatal(err)
	}

	keep = append(keep, probe)
	r.mustHold(keep...)

	for _, s := range keep {
		if err := r.runtime("cache").CheckNetworkList(t.Context(), list, s.RuntimeConf); err != nil {
			t.Error(err)
		}
	}
}

// answering creates pods that answer with their names, each with a sandbox.
func (r *cniRig) answering(name string, n int) (all []sandbox, addresses map[string][]netip.Addr) {
	r.t.Helper()

	addresses = map[string][]netip.Addr{}

	for i := range n {
		pod := r.createPod(fmt.Sprint(name, i))
		addresses[pod.Name] = r.giveBoth(pod, byte(3+i))
		s := r.sandbox(pod, "c-"+pod.Name)
		s.answer(r)
		all = append(all, s)
	}

	return all, addresses
}

// renew gives each pod a new sandbox, as runtimes never reuse an ID.
func renew(all []sandbox, round int) []sandbox {
	out := slices.Clone(all)
	for i, s := range all {
		conf := *s.RuntimeConf
		conf.ContainerID = fmt.Sprintf("c-%d-%s", round, s.pod.Name)
		out[i].RuntimeConf = &conf
	}

	return out
}

// forAll calls do for all sandboxes concurrently, and repeats each until it succeeds.
func (r *cniRig) forAll(all []sandbox, do func(sandbox) error) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()

	errs := make([]error, len(all))

	var group sync.WaitGroup
	for i, s := range all {
		group.Go(func() {
			for {
				errs[i] = do(s)
				if errs[i] == nil || ctx.Err() != nil {
					return
				}

				time.Sleep(100 * time.Millisecond)
			}
		})
	}

	group.Wait()

	return errors.Join(errs...)
}

// TestLatency measures ADD from the plugin's start to its result, for pods that already have an
// address: one after another, and all at once. The result includes the 20 ms polling interval of
// the stand-in for ovn-controller.
func TestLatency(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a measurement, nothing can fail")
	}

	r := newCNIRig(t)
	r.start()
	r.getReady()

	var all []sandbox

	for i := range 100 {
		pod := r.createPod(fmt.Sprintf("latency%d", i))
		r.give(pod, byte(3+i))
		all = append(all, r.sandbox(pod, "c-"+pod.Name))
	}

	list := r.network("1.0.0", "")
	took := make([]time.Duration, len(all))
	add := func(i int) error {
		start := time.Now()
		_, err := r.runtime("cache").AddNetworkList(t.Context(), list, all[i].RuntimeConf)
		took[i] = time.Since(start)

		return err
	}
	report := func(what string) {
		slices.Sort(took)
		t.Logf("%s: p50 %v, p99 %v", what, took[len(took)/2], took[len(took)*99/100])

		if err := r.forAll(all, func(s sandbox) error { return r.runtime("cache").DelNetworkList(t.Context(), list, s.RuntimeConf) }); err != nil {
			t.Fatal(err)
		}
	}

	for i := range all {
		if err := add(i); err != nil {
			t.Fatal(err)
		}
	}

	report("one after the other")

	var group errgroup.Group
	for i := range all {
		group.Go(func() error { return add(i) })
	}

	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}

	report("100 at once")
}
