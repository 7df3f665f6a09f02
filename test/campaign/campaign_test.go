package campaign

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// Configuration of a campaign: duration, seed, kinds of steps, and the directory for its report.
const (
	forEnv  = "OVN_EBPF_CAMPAIGN_FOR"
	seedEnv = "OVN_EBPF_CAMPAIGN_SEED"
	onlyEnv = "OVN_EBPF_CAMPAIGN_ONLY"
	keepEnv = "OVN_EBPF_CAMPAIGN_KEEP"
	healEnv = "OVN_EBPF_CAMPAIGN_HEAL" // time limit for recovery after a fault; default one minute
)

func TestCampaignFaults(t *testing.T) { run(t, "f", Faults) }

func TestCampaignAPI(t *testing.T) { run(t, "a", API) }

func TestCampaignPolicies(t *testing.T) { run(t, "p", Policies) }

func TestCampaignWire(t *testing.T) { run(t, "w", Wire) }

// run runs a campaign, which must find no fault.
func run(t *testing.T, name string, campaign func(context.Context, Options) (*Report, error)) {
	o := options(t, name)

	report, err := campaign(t.Context(), o)
	if report != nil {
		t.Logf("%s\n%s", report.Campaign, Table([]*Report{report}))

		for _, broken := range report.Broken {
			t.Errorf("%s=%d: %s", seedEnv, o.Seed, broken)
		}

		if dir := os.Getenv(keepEnv); dir != "" {
			if err := report.Keep(dir); err != nil {
				t.Error(err)
			}
		}
	}

	if err != nil {
		t.Error(err)
	}
}

// options returns the options from the environment. Without a duration it skips the test.
func options(t *testing.T, name string) Options {
	t.Helper()

	if os.Getenv(forEnv) == "" {
		t.Skipf("%s is not set: a campaign takes minutes; .ci/full has them", forEnv)
	}

	if os.Getuid() != 0 {
		t.Fatal("not root: the lab makes network namespaces")
	}

	bin := os.Getenv("BIN_DIR")
	if bin == "" {
		t.Fatal("BIN_DIR is not set")
	}

	o := Options{Seed: rand.Uint64N(1e6), Log: os.Stdout, Lab: lab.Options{
		Name: "campaign" + name, Dir: "/run/ovn-ebpf-campaign" + name, BinDir: bin, CacheDir: os.Getenv("OVN_EBPF_CACHE"), Progress: os.Stdout,
	}}

	var err error
	if o.For, err = time.ParseDuration(os.Getenv(forEnv)); err != nil {
		t.Fatal(err)
	}

	if heal := os.Getenv(healEnv); heal != "" {
		if o.Heal, err = time.ParseDuration(heal); err != nil {
			t.Fatal(err)
		}
	}

	if seed := os.Getenv(seedEnv); seed != "" {
		if o.Seed, err = strconv.ParseUint(seed, 10, 64); err != nil {
			t.Fatal(err)
		}
	}

	if only := os.Getenv(onlyEnv); only != "" {
		o.Only = regexp.MustCompile(only)
	}

	fmt.Printf("%s=%d %s=%s\n", seedEnv, o.Seed, forEnv, o.For)

	return o
}
