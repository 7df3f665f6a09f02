package informer_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/informer"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// plainLists is a client of ConfigMaps whose API server does not stream lists.
type plainLists struct{ typedcorev1.ConfigMapInterface }

func (p plainLists) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, apierrors.NewBadRequest("sendInitialEvents is forbidden")
	}

	return p.ConfigMapInterface.Watch(ctx, o)
}

// restorable is an API server whose database a test can restore, with informers of its ConfigMaps.
type restorable struct {
	*kube.Server
	t         *testing.T
	dir       string // of the server
	client    kubernetes.Interface
	link      kubetest.Link // of the informers
	held      sync.RWMutex  // while it is locked, new connections of the informers wait
	informers map[string]*informer.Informer
}

func newRestorable(t *testing.T) *restorable {
	if err := platform.Default(t.Output()); err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()

	s, err := kube.Start(t.Context(), kube.Options{Dir: dir, Binary: kubetest.Binary(t)})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})

	config := rest.CopyConfig(s.RestConfig())
	config.QPS = -1
	r := &restorable{Server: s, t: t, dir: dir, client: kubernetes.NewForConfigOrDie(config)}

	ours := r.link.Config(config)
	dial := ours.Dial
	ours.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		r.held.RLock()
		defer r.held.RUnlock()

		return dial(ctx, network, address)
	}
	maps := kubernetes.NewForConfigOrDie(ours).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	options := informer.Options{Name: "ConfigMaps", Example: &corev1.ConfigMap{}, RetryMax: time.Second, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}

	r.informers = map[string]*informer.Informer{"streamed lists": informer.New(maps, options), "plain lists": informer.New(plainLists{maps}, options)}
	for _, inf := range r.informers {
		go inf.RunWithContext(t.Context())
	}

	return r
}

// put creates or changes a ConfigMap.
func (r *restorable) put(name, value string) {
	r.t.Helper()
	maps := r.client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}

	_, err := maps.Create(r.t.Context(), m, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = maps.Update(r.t.Context(), m, metav1.UpdateOptions{})
	}

	if err != nil {
		r.t.Fatal(err)
	}
}

// advance raises the database's revision by a number of changes.
func (r *restorable) advance(changes int) {
	r.t.Helper()

	for i := range changes {
		r.put("counter", fmt.Sprint(i))
	}
}

// value returns the value of a ConfigMap in an informer's copy, or "".
func value(inf *informer.Informer, name string) string {
	o, ok, _ := inf.GetIndexer().GetByKey(metav1.NamespaceDefault + "/" + name)
	if !ok {
		return ""
	}

	return o.(*corev1.ConfigMap).Data["value"]
}

// awaitInSync waits until no informer is behind.
func (r *restorable) awaitInSync() {
	r.t.Helper()

	for name, inf := range r.informers {
		await(r.t, name+": not behind", func() bool { return inf.Behind() == nil })
	}
}

// backup copies the data of etcd while etcd is paused, so the copy is like that after a crash.
func (r *restorable) backup() (dir string) {
	r.t.Helper()

	etcd, err := process.Load(filepath.Join(r.dir, "etcd.pid"))
	if err != nil {
		r.t.Fatal(err)
	}

	if err := etcd.Signal(syscall.SIGSTOP); err != nil {
		r.t.Fatal(err)
	}

	dir = filepath.Join(r.t.TempDir(), "etcd")
	if err := os.CopyFS(dir, os.DirFS(r.Data())); err != nil {
		r.t.Fatal(err)
	}

	if err := etcd.Signal(syscall.SIGCONT); err != nil {
		r.t.Fatal(err)
	}

	return dir
}

// restore stops the server, replaces its data and starts it again.
func (r *restorable) restore(backup string) {
	r.t.Helper()

	if err := r.Stop(); err != nil {
		r.t.Fatal(err)
	}

	if err := os.RemoveAll(r.Data()); err != nil {
		r.t.Fatal(err)
	}

	if err := os.CopyFS(r.Data(), os.DirFS(backup)); err != nil {
		r.t.Fatal(err)
	}

	if err := r.Restart(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// checkRestored waits until no informer is behind, and compares the copies with the restored state.
// Informers that list at the copy's version are behind for longer than the limit.
func (r *restorable) checkRestored() {
	r.t.Helper()

	const limit = 20 * time.Second

	began := time.Now()

	for name, inf := range r.informers {
		await(r.t, name+": not behind", func() bool { return inf.Behind() == nil })

		took := time.Since(began)
		r.t.Logf("%s: not behind after %.1f s", name, took.Seconds())

		if took > limit {
			r.t.Errorf("%s: behind for %s, want %s at most", name, took, limit)
		}

		for object, want := range map[string]string{"changed": "early", "created": "", "deleted": "early", "new": "late"} {
			if got := value(inf, object); got != want {
				r.t.Errorf("%s: not behind, but %s is %q, want %q", name, object, got, want)
			}
		}
	}
}

// diverge makes the server, and the copies, differ from an earlier backup.
func (r *restorable) diverge() {
	r.t.Helper()
	r.put("changed", "late")
	r.put("created", "late")

	if err := r.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Delete(r.t.Context(), "deleted", metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}

	r.advance(300)

	for name, inf := range r.informers {
		await(r.t, name+": all changes", func() bool { return value(inf, "counter") == "299" && inf.Behind() == nil })
	}
}

// TestRestored_earlierRevision restores the database to a revision below that of the informers'
// copies. The next connections of the informers wait for the restored server, as behind a load
// balancer, so the informers see no failure.
func TestRestored_earlierRevision(t *testing.T) {
	r := newRestorable(t)
	r.put("changed", "early")
	r.put("deleted", "early")
	r.awaitInSync()
	backup := r.backup()
	r.diverge()

	reasons := r.recordReasons()
	r.held.Lock()
	r.restore(backup)
	r.put("new", "late")
	r.held.Unlock()
	r.checkRestored()

	for name, all := range reasons() {
		if !strings.Contains(all, "of a later state") {
			t.Errorf("%s: never behind because of a restore, but: %s", name, all)
		}
	}

	r.put("new", "later")

	for name, inf := range r.informers {
		await(t, name+": the next change", func() bool { return value(inf, "new") == "later" })
	}
}

// recordReasons records why the informers are behind, until the returned function is called.
func (r *restorable) recordReasons() (end func() map[string]string) {
	stop := make(chan struct{})
	all := map[string]string{}

	var recording sync.WaitGroup
	recording.Go(func() {
		for {
			for name, inf := range r.informers {
				if err := inf.Behind(); err != nil && !strings.Contains(all[name], err.Error()) {
					all[name] += err.Error() + "\n"
				}
			}

			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})

	return func() map[string]string {
		close(stop)
		recording.Wait()

		return all
	}
}

// TestRestored_laterRevision restores the database while the informers are cut off. Before they are
// connected again, the database's revision passes that of their copies.
func TestRestored_laterRevision(t *testing.T) {
	if testing.Short() {
		t.Skip("a second restore takes too long: .ci/full has it, part outages")
	}

	r := newRestorable(t)
	r.put("changed", "early")
	r.put("deleted", "early")
	r.awaitInSync()
	backup := r.backup()
	r.diverge()

	r.link.Cut()
	r.restore(backup) // takes as long as an outage that counts
	r.put("new", "late")
	r.advance(1000)
	r.link.Mend()
	r.checkRestored()
}
