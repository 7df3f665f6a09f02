package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// TestReadyAfterOutage: a leader that was cut off from the API server is ready again when
// the database has what happened meanwhile, and not when the API server answers.
func TestReadyAfterOutage(t *testing.T) {
	config := kubetest.Start(t).RestConfig()
	client := kubernetes.NewForConfigOrDie(config)
	s := nbtest.Start(t)

	var link kubetest.Link

	l := startLoop(t, link.Config(config), s.Endpoint, nil)
	createNode(t, client, "node1")
	createPod(t, client, "first", nil)

	port := func(name string) bool {
		return s.Nbctl("--bare", "--columns=name", "find", "logical_switch_port", "name=default_"+name) != ""
	}

	nbtest.Eventually(t, "it works", func() bool { return port("first") })

	for i, outage := range []time.Duration{2 * time.Second, 4 * time.Second} {
		nbtest.Eventually(t, "it is ready", func() bool { return l.Ready() == nil })
		link.Cut()

		name := fmt.Sprint("meanwhile", i)
		createPod(t, client, name, nil)
		time.Sleep(outage)
		link.Mend()

		mended := time.Now()

		var last error

		nbtest.Eventually(t, "it is ready again", func() bool {
			err := l.Ready()
			if err != nil {
				last = err
			}

			return err == nil
		})

		if !port(name) {
			t.Errorf("it is ready, and pod %s has no port", name)
		}

		t.Logf("ready %.1f s after the API server was back; the last that was missing: %v", time.Since(mended).Seconds(), last)
	}
}

// TestReadyWithEmptyAnnotation: an empty annotation of a pod that can have no address is
// taken away, and what follows is waited for no longer than that takes.
func TestReadyWithEmptyAnnotation(t *testing.T) {
	config := kubetest.Start(t).RestConfig()
	client := kubernetes.NewForConfigOrDie(config)
	subnets := annotation.FormatNodeSubnets([]netip.Prefix{netip.MustParsePrefix("10.244.0.0/29")})

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Annotations: map[string]string{annotation.NodeSubnets: subnets}}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	createPod(t, client, "elsewhere", map[string]string{annotation.PodNetworks: "", annotation.DefaultNetwork: `{"ips":["192.0.2.1"]}`})
	l := startLoop(t, config, nbtest.Start(t).Endpoint, nil)
	nbtest.Eventually(t, "it is ready", func() bool { return l.Ready() == nil })

	pod, err := client.CoreV1().Pods("default").Get(t.Context(), "elsewhere", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if text, has := pod.Annotations[annotation.PodNetworks]; has {
		t.Errorf("the pod's annotation is %q, want none", text)
	}
}

// asking is a log handler that calls a function at each message, before the message is logged.
type asking struct {
	slog.Handler
	ask func(message string)
}

func (a asking) Handle(ctx context.Context, r slog.Record) error {
	a.ask(r.Message)
	return a.Handler.Handle(ctx, r)
}

// TestReadyAlone: a loop that is to lead without an election is at no time as ready as a
// standby is, which has only to know the cluster: it has written nothing.
func TestReadyAlone(t *testing.T) {
	config := kubetest.Start(t).RestConfig()
	createNode(t, kubernetes.NewForConfigOrDie(config), "node1")

	started, asked := make(chan *reconcile.Loop, 1), map[string]bool{}

	var l *reconcile.Loop

	loop := startLoopWith(t, config, nbtest.Start(t).Endpoint, func(o *reconcile.Options) {
		o.Log = slog.New(asking{o.Log.Handler(), func(message string) {
			if message != "cluster listed" && message != "leading" && message != "full sync" {
				return
			}

			if l == nil {
				l = <-started
			}

			asked[message] = true
			if l.Ready() == nil {
				t.Errorf("ready at %q", message)
			}
		}})
	})
	started <- loop

	nbtest.Eventually(t, "it is ready", func() bool { return loop.Ready() == nil })

	if len(asked) != 3 {
		t.Errorf("asked at %v only", asked)
	}
}
