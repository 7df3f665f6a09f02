package campaign

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestAsConfigMap checks that each call of an attack has a harmless one: for a ConfigMap of its own in
// the same namespace, with the whole object or patch.
func TestAsConfigMap(t *testing.T) {
	g, err := newGenerator(rand.NewPCG(1, 2), testValues(), nil, []string{"tenant0-a"})
	if err != nil {
		t.Fatal(err)
	}

	seen := map[verb]int{}

	for range 2000 {
		for _, c := range g.step().calls {
			size := len(c.patch)

			m, err := asConfigMap(&c)
			if err != nil {
				t.Fatal(err)
			}

			seen[c.verb]++

			if m.Namespace != "tenant0-a" || !strings.HasSuffix(m.Name, "-"+c.object.GetName()) || m.Name == "-"+c.object.GetName() {
				t.Fatalf("%s/%s in place of %s", m.Namespace, m.Name, c.object.GetName())
			}

			if !strings.Contains(m.Data["object"], c.object.GetName()) || c.verb == patch && (size == 0 || len(c.patch) < size) {
				t.Fatalf("verb %d: %d bytes of the patch, object %.200s", c.verb, len(c.patch), m.Data["object"])
			}

			if c.verb == report {
				if c.status(m); len(m.Annotations) == 0 {
					t.Fatal("a report changes nothing")
				}
			}
		}
	}

	for _, v := range []verb{create, replace, remove, toggle, patch, report} {
		if seen[v] == 0 {
			t.Errorf("no call with verb %d among %v", v, seen)
		}
	}
}
