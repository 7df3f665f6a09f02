package kubelets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	changesNamespace = "changes"
	changesPort      = 8080
	changesKept      = 6 // pods and Services at a time
	clientPod        = "client"
)

// changes creates and deletes pods and Services, one of each per second.
type changes struct {
	d      *deployment
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	made  int
	gone  map[string]bool // cluster IPs of deleted Services
	errs  []error
	kept  []string          // names of existing pods and Services
	addrs map[string]string // cluster IPs of the existing Services
}

func (d *deployment) startChanges(ctx context.Context) (*changes, error) {
	core := d.client.CoreV1()
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: changesNamespace}}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithCancel(ctx)
	c := &changes{d: d, cancel: cancel, done: make(chan struct{}), gone: map[string]bool{}, addrs: map[string]string{}}

	err := d.await(ctx, "the namespace's service account", func() error {
		_, err := core.ServiceAccounts(changesNamespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err == nil {
		err = c.pod(ctx, clientPod, "pause")
	}

	if err != nil {
		cancel()
		return nil, err
	}

	go func() {
		defer close(c.done)

		tick := time.NewTicker(time.Second)
		defer tick.Stop()

		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}

			if err := c.next(ctx); err != nil && ctx.Err() == nil {
				c.mu.Lock()
				c.errs = append(c.errs, err)
				c.mu.Unlock()
			}
		}
	}()

	return c, nil
}

func (c *changes) pod(ctx context.Context, name string, args ...string) error {
	_, err := c.d.client.CoreV1().Pods(changesNamespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Containers:                    []corev1.Container{{Name: agnhostName, Image: testImages[0], Args: args}},
		},
	}, metav1.CreateOptions{})

	return err
}

// next creates a pod with a Service, and deletes the oldest ones beyond the limit.
func (c *changes) next(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	name := fmt.Sprintf("web-%d", c.made)
	c.made++

	core := c.d.client.CoreV1()
	if err := c.pod(ctx, name, "netexec", fmt.Sprintf("--http-port=%d", changesPort)); err != nil {
		return err
	}

	service, err := core.Services(changesNamespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(changesPort)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}

	c.kept = append(c.kept, name)

	c.addrs[name] = service.Spec.ClusterIP
	if len(c.kept) <= changesKept {
		return nil
	}

	oldest := c.kept[0]
	c.kept = c.kept[1:]
	c.gone[c.addrs[oldest]] = true
	delete(c.addrs, oldest)

	return errors.Join(
		core.Services(changesNamespace).Delete(ctx, oldest, metav1.DeleteOptions{}),
		core.Pods(changesNamespace).Delete(ctx, oldest, metav1.DeleteOptions{}),
	)
}

func (c *changes) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()

	return fmt.Sprintf("%d pods and Services made, %d of them gone", c.made, len(c.gone))
}

// stop ends the changes and returns their error. It waits until some Services were deleted, as an
// update may take less time than that.
func (c *changes) stop(ctx context.Context) error {
	err := c.d.await(ctx, "Services that are gone again", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()

		if len(c.gone) == 0 && len(c.errs) == 0 {
			return fmt.Errorf("%d changes", c.made)
		}

		return nil
	})
	c.cancel()
	<-c.done

	return errors.Join(append(c.errs, err)...)
}

// programmed waits until OVN's Northbound database matches the cluster, and every Service answers.
func (c *changes) programmed(ctx context.Context) error {
	for _, ip := range c.addrs { // the API server may have reused an address
		delete(c.gone, ip)
	}

	if err := c.d.await(ctx, "OVN's database to equal the cluster", func() error { return c.compare(ctx) }); err != nil {
		return err
	}

	return c.d.await(ctx, "all Services to answer", func() error {
		for _, name := range c.kept {
			at := net.JoinHostPort(c.addrs[name], "80")

			out, err := c.d.kubectl(ctx, nil, "-n", changesNamespace, "exec", clientPod, "--", "curl", "-sS", "-m", "2", "http://"+at+"/hostname")
			if err != nil {
				return err
			}

			if string(out) != name {
				return fmt.Errorf("%s at %s answers %q", name, at, out)
			}
		}

		return nil
	})
}

func (c *changes) compare(ctx context.Context) error {
	want := []string{changesNamespace + "_" + clientPod}
	for _, name := range c.kept {
		want = append(want, changesNamespace+"_"+name)
	}

	slices.Sort(want)

	out, err := c.d.northbound(ctx, "Logical_Switch_Port", "name")
	if err != nil {
		return err
	}

	have := slices.DeleteFunc(strings.Fields(out), func(port string) bool { return !strings.HasPrefix(port, changesNamespace+"_") })
	if slices.Sort(have); !slices.Equal(have, want) {
		return fmt.Errorf("ports %q, want %q", have, want)
	}

	if out, err = c.d.northbound(ctx, "Load_Balancer", "vips"); err != nil {
		return err
	}

	served := map[string]string{} // endpoints by address

	for _, vip := range strings.Fields(out) {
		front, to, _ := strings.Cut(vip, "=")
		if at, err := netip.ParseAddrPort(front); err == nil {
			served[at.Addr().String()] = to
		}
	}

	for name, ip := range c.addrs {
		if served[ip] == "" {
			return fmt.Errorf("service %s: %s has no endpoints in OVN", name, ip)
		}
	}

	for ip := range maps.Keys(c.gone) {
		if _, is := served[ip]; is {
			return fmt.Errorf("%s is in OVN, and its Service is gone", ip)
		}
	}

	return nil
}

// remove deletes everything, as required before an uninstallation (docs/install.md).
func (c *changes) remove(ctx context.Context) error {
	namespaces := c.d.client.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, changesNamespace, metav1.DeleteOptions{}); err != nil {
		return err
	}

	return c.d.await(ctx, "namespace "+changesNamespace+" to be gone", func() error {
		_, err := namespaces.Get(ctx, changesNamespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}

		return errors.Join(err, errors.New("the namespace still exists"))
	})
}
