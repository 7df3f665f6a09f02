package gateway

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
)

// frontends is the number of frontends of a Service with a node port: two cluster IPs, and the node port
// at three addresses and at all addresses of both families.
const frontends = 2 + 3 + 2

// serviceIn returns the key of numbered Service i in the namespace, and its objects.
func serviceIn(namespace string, i, pods int) (service.Key, service.Objects) {
	o := numbered(i, pods)

	o.Service.Namespace = namespace
	for _, s := range o.Slices {
		s.Namespace = namespace
	}

	return service.Key{Namespace: namespace, Name: o.Service.Name}, o
}

// TestServices_holdBusyNamespaces checks that the changes of a namespace that has changed too many
// entries wait, and that those of other namespaces and of the API server's Service do not. When the wait
// is over, the Services' loop is triggered, and all changes are written.
func TestServices_holdBusyNamespaces(t *testing.T) {
	r := newServingRig(t)
	r.Services.close() // the gateway's table alone
	r.sync(t)

	change := func(namespace string, i int) {
		t.Helper()

		k, o := serviceIn(namespace, i, 1)
		r.set(k, o)
	}
	check := func(what string, entries int) {
		t.Helper()
		r.sync(t)

		if got := r.entries(t); got != entries {
			t.Errorf("%s: %d frontends, want %d", what, got, entries)
		}
	}

	r.namespaces.Spend("busy", entriesAtOnce+entriesPerSecond/4)
	change("busy", 4)
	change("busy", 8)
	change("quiet", 12)

	apiServer, o := serviceIn("default", 16, 1)
	apiServer.Name, o.Service.Name = "kubernetes", "kubernetes"

	r.namespaces.Spend("default", entriesAtOnce+entriesPerSecond)
	r.set(apiServer, o)
	change("default", 24)

	<-r.ownWake
	check("a busy namespace", 2*3)
	check("again", 2*3)

	if len(r.dirty) != 3 || r.record.read().Held != 3 {
		t.Errorf("held: %v (%d in the metric), want the Services of busy, and one of default",
			r.dirty, r.record.read().Held)
	}

	select {
	case <-r.ownWake:
	case <-time.After(time.Minute):
		t.Fatal("the loop is not triggered when the wait is over")
	}

	check("the wait is over", 4*3)

	r.node.Addresses = slices.Clone(r.node.Addresses[:2])

	check("the node has an address less, so all Services are planned", 5*2)

	if held := r.record.read().Held; held != 0 {
		t.Errorf("%d held in the metric after all Services were planned", held)
	}
}

// TestServices_chargeNamespaces checks how many entries the changes of a namespace count.
func TestServices_chargeNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no bucket gets tokens meanwhile
		r := newServingRig(t)
		key, five := serviceIn("a", 8, 5)

		r.objects[key] = five
		r.sync(t)

		if !r.namespaces.IsFull("a") {
			t.Error("the first plan of all objects counts")
		}

		for _, step := range []struct {
			name string
			pods int // negative: the Service is deleted
			want int
		}{
			{"without a change", 5, (frontends + 2*5) / plansPerEntry},
			{"fewer pods", 2, frontends + 2*5},
			{"more pods", 3, frontends + 2*3},
			{"deleted", -1, frontends + 2*3},
			{"deleted twice", -1, 0},
			{"created", 1, frontends + 2*1},
		} {
			_, o := serviceIn("a", 8, max(0, step.pods))
			if step.pods < 0 {
				o = service.Objects{}
			}

			before := r.namespaces.Tokens("a")

			r.set(key, o)
			r.sync(t)

			if got := int(before - r.namespaces.Tokens("a")); got != step.want {
				t.Errorf("%s: %d entries, want %d", step.name, got, step.want)
			}
		}
	})
}

// TestServices_takeFrontendsFromHeld checks that a frontend which a held object no longer wants does not
// keep another namespace's object waiting, and that other held objects stay held.
func TestServices_takeFrontendsFromHeld(t *testing.T) {
	for _, tc := range []struct {
		name    string
		now     func() service.Objects // of the older Service
		isTaken bool
		looked  int // entries for which the other namespace pays, because the agent looks at this Service
	}{
		{"deleted", func() service.Objects { return service.Objects{} }, true, 0},
		{"without node port", func() service.Objects {
			_, o := serviceIn("busy", 5, 1)
			o.Service.Name = "s4"

			return o
		}, true, (2 + 2*1) / plansPerEntry},
		{"with more pods", func() service.Objects {
			_, o := serviceIn("busy", 4, 3)
			return o
		}, false, (frontends + 2*3) / plansPerEntry},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // no bucket gets tokens meanwhile
				r := newServingRig(t)
				older, o := serviceIn("busy", 4, 1) // a node port
				r.set(older, o)
				r.sync(t)

				younger, o := serviceIn("quiet", 4, 1)
				o.Service.CreationTimestamp.Time = time.Unix(1, 0)
				o.Service.Spec.ClusterIPs = []string{"10.96.1.1", "fd00:10:96::1:1"}

				r.namespaces.Spend("busy", 2*entriesAtOnce)
				r.set(older, tc.now())
				r.set(younger, o)

				other, o := serviceIn("busy", 8, 1)
				r.set(other, o)
				r.sync(t)

				if holders := r.tables.Preceding(younger); len(holders) == 0 != tc.isTaken {
					t.Errorf("others have its frontends: %v", holders)
				}

				if !r.dirty[other] || r.dirty[older] == tc.isTaken {
					t.Errorf("held: %v, want %v, and %v if it has the frontends", r.dirty, other, older)
				}

				if got, want := entriesAtOnce-int(r.namespaces.Tokens("quiet")), frontends+2*1+tc.looked; got != want {
					t.Errorf("the change counts %d entries, want %d", got, want)
				}
			})
		})
	}
}
