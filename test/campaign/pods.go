package campaign

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// leader returns the name of the controller process that holds the lease.
func (f *faults) leader(ctx context.Context) (string, error) {
	lease, err := f.client.CoordinationV1().Leases("kube-system").List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}

	for _, l := range lease.Items {
		holder := ""
		if l.Spec.HolderIdentity != nil {
			holder = *l.Spec.HolderIdentity
		}

		for _, name := range []string{"controller", "standby"} {
			if p, err := f.Process(name); err == nil && strings.HasSuffix(holder, "_"+strconv.Itoa(p.PID)) {
				return name, nil
			}
		}
	}

	return "", errors.New("find the leading controller: no lease is held by one that runs")
}

// newPod creates a pod of the victim, in one attempt.
func (g *ground) newPod(ctx context.Context, node string) (*lab.Pod, error) {
	return g.AddPod(ctx, lab.PodSpec{Namespace: victim, Name: fmt.Sprintf("new%d", g.serial.Add(1)), Node: node, Labels: map[string]string{"app": "new"}})
}

// delPod retries until a pod is deleted, for at most a minute.
func (g *ground) delPod(ctx context.Context, p *lab.Pod) error {
	return insist(ctx, time.Minute, func() error { return g.DelPod(ctx, p) })
}

// insist retries until do succeeds, for at most the limit.
func insist(ctx context.Context, limit time.Duration, do func() error) error {
	for end := time.Now().Add(limit); ; {
		err := do()
		if err == nil || time.Now().After(end) || ctx.Err() != nil {
			return err
		}

		time.Sleep(200 * time.Millisecond)
	}
}

// podWorks creates a pod on the node, checks its interface and connectivity, and deletes it. It
// retries as kubelet does.
func (g *ground) podWorks(ctx context.Context, node string) error {
	var p *lab.Pod

	err := insist(ctx, time.Minute, func() (err error) {
		each, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()

		p, err = g.newPod(each, node)

		return err
	})
	if err != nil {
		return fmt.Errorf("no pod can be made on %s: %w", node, err)
	}

	err = g.podRight(ctx, p)

	return errors.Join(err, g.delPod(ctx, p))
}

// podRight compares a pod with its annotation and the Northbound database, and probes it from its
// own host and from a pod on another node.
func (g *ground) podRight(ctx context.Context, p *lab.Pod) error {
	err := insist(ctx, 30*time.Second, func() error { return g.agreed(ctx, p) })
	if err != nil {
		return fmt.Errorf("pod %s: %w", p.Name, err)
	}

	other := g.pods["a"]
	if p.Node == "node1" {
		other = g.pods["c"]
	}

	for _, from := range []string{p.Node, other.Host()} {
		for _, a := range p.IPs {
			err := insist(ctx, 30*time.Second, func() error {
				_, err := g.Exec(ctx, from, "ping", "-n", "-c", "1", "-W", "2", a.String())
				return err
			})
			if err != nil {
				return fmt.Errorf("pod %s at %s is not answered from %s: %w", p.Name, a, from, err)
			}
		}
	}

	return nil
}

// agreed returns an error unless interface, annotation and database of a pod agree.
func (g *ground) agreed(ctx context.Context, p *lab.Pod) error {
	object, err := g.client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}

	given, err := annotation.ParsePod(object.Annotations)
	if err != nil {
		return err
	}

	var annotated []netip.Addr
	for _, a := range given.Addresses {
		annotated = append(annotated, a.Addr())
	}

	out, err := g.Exec(ctx, p.Host(), "ip", "-br", "addr", "show", "eth0")
	if err != nil {
		return err
	}

	var wired []netip.Addr

	for _, word := range strings.Fields(string(out)) {
		if a, err := netip.ParsePrefix(word); err == nil && !a.Addr().IsLinkLocalUnicast() {
			wired = append(wired, a.Addr())
		}
	}

	rows, err := g.rows(ctx)
	if err != nil {
		return err
	}

	var listed []netip.Addr

	for _, word := range strings.Fields(rows[p.Namespace+"_"+p.Name]) {
		if a, err := netip.ParseAddr(word); err == nil {
			listed = append(listed, a)
		}
	}

	for _, s := range [][]netip.Addr{annotated, wired, listed} {
		slices.SortFunc(s, netip.Addr.Compare)
	}

	if !slices.Equal(annotated, wired) || !slices.Equal(annotated, listed) {
		return fmt.Errorf("annotation %v, interface %v, Northbound %v", annotated, wired, listed)
	}

	return nil
}

// rows returns the addresses of all switch ports by name. Two ports with the same address are an
// error.
func (g *ground) rows(ctx context.Context) (map[string]string, error) {
	out, err := g.Exec(ctx, "central", "ovn-nbctl", "--timeout=20", "--format=csv", "--data=bare", "--no-headings", "--columns=name,addresses", "list", "Logical_Switch_Port")
	if err != nil {
		return nil, err
	}

	rows, owner := map[string]string{}, map[string]string{}

	for line := range strings.Lines(string(out)) {
		name, addresses, _ := strings.Cut(strings.TrimSpace(line), ",")

		rows[name] = addresses
		for _, word := range strings.Fields(addresses) {
			if _, err := netip.ParseAddr(word); err != nil {
				continue
			}

			if owner[word] != "" {
				return nil, fmt.Errorf("address %s is of two ports, %s and %s", word, owner[word], name)
			}

			owner[word] = name
		}
	}

	return rows, nil
}

// leftovers deletes the pods of failed attempts.
func (g *ground) leftovers(ctx context.Context) error {
	pods, err := g.client.CoreV1().Pods(victim).List(ctx, metav1.ListOptions{LabelSelector: "app=new"})
	if err != nil {
		return err
	}

	for _, p := range pods.Items {
		now := int64(0)
		if err := g.client.CoreV1().Pods(victim).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}

	return nil
}
