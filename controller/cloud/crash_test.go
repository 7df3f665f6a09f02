package cloud_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

const crashNode = `
metadata:
  name: node1
  annotations:
    ovn-ebpf.io/underlay: '{"vif":"vif","mac":"fa:16:3e:00:00:aa","address":"10.0.0.11","mtu":1442,"ports":29}'
status:
  addresses: [{type: InternalIP, address: 10.0.0.11}]
`

// TestAnyOrderComesToTheSamePool: steps that are executed in any order, twice, or with a plan that
// was made before others, come to the same pool; the release leaves nothing.
func TestAnyOrderComesToTheSamePool(t *testing.T) {
	seed := randomtest.Seed(t)
	for i := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, i))

		s := newScene(t, crashNode, "")
		if err := anyOrder(s, random); err != nil {
			t.Fatalf("seed %d, %d: join: %v", seed, i, err)
		}

		pool, err := cloud.NodePool(s.config, &s.node, 0)
		if err != nil {
			t.Fatal(err)
		}

		lines := pool.Record(s.cloud.Seen).Lines
		if len(lines) != 29 || len(s.cloud.Seen.Networks) != 1 || len(s.cloud.Seen.Subnets) != 1 {
			t.Fatalf("seed %d, %d: %d lines, networks %v, subnets %v", seed, i, len(lines), s.cloud.Seen.Networks, s.cloud.Seen.Subnets)
		}

		first := s.cloud.Seen.Subnets[0].Prefix.Addr().As4()[3]
		for j, l := range lines {
			if l.Tag != j+2 || l.Addresses[0].As4()[3] != first+byte(l.Tag) {
				t.Errorf("seed %d, %d: line %v, want tag %d and the subnet's address of that number", seed, i, l, j+2)
			}
		}

		s.left = true
		if err := anyOrder(s, random); err != nil {
			t.Fatalf("seed %d, %d: release: %v", seed, i, err)
		}

		if c := s.cloud.Seen; len(c.Networks)+len(c.Subnets)+len(c.Ports)+len(c.Trunks) > 0 {
			t.Fatalf("seed %d, %d: left %+v", seed, i, c)
		}
	}
}

// anyOrder executes random prefixes of plans, each step up to three times. Errors are ignored, as
// by a controller that observes anew.
func anyOrder(s *scene, random *rand.Rand) error {
	for range 10000 {
		plan := s.plan()
		if len(plan.Steps) == 0 {
			if len(plan.Problems) > 0 {
				return fmt.Errorf("problems %v", plan.Problems)
			}

			return nil
		}

		for _, step := range plan.Steps[:1+random.IntN(len(plan.Steps))] {
			for range 1 + random.IntN(2)*random.IntN(3) {
				_, _ = s.cloud.Do(context.Background(), step) // a repeated step is refused
			}
		}
	}

	return fmt.Errorf("the plan has no end: %v", s.plan().Steps)
}
