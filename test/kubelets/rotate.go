package kubelets

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// authorities are the Secrets of the two authorities: of the databases and of nodes.
var authorities = []string{"ovn-ebpf-ca", "ovn-ebpf-node-ca"}

// shortLives are the arguments with which certificates of nodes are renewed, and authorities
// change, within minutes. Kubelets bring a changed Secret within 90 s.
const shortLives = `[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--node-life=2m"},{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--handover=150s"}]`

// Rotate renews a node's certificate, changes both authorities, deletes the pod of OVN's databases,
// and fills their disk, all under traffic. No connection may be lost and no ovn-controller may restart. A pod
// that is created while the databases are away must wait, and get its network later. It needs
// Options.Members 1 and Options.Traffic.
func (c *Cluster) Rotate(ctx context.Context) error {
	r := &central{Cluster: c}
	if err := r.rotate(ctx); err != nil {
		return fmt.Errorf("rotation of certificates: %w", err)
	}

	return nil
}

func (t *central) rotate(ctx context.Context) error {
	var err error
	if t.servers, err = t.startServers(ctx); err != nil {
		return err
	}

	before, err := t.onNodes(ctx, "ovn-controller")
	if err != nil {
		return err
	}

	flows, err := t.startFlows(ctx, "rotate", t.servers)
	if err != nil {
		return err
	}

	for _, step := range []func(context.Context) error{t.renewNode, t.changeAuthorities, t.deleteCentral, t.fillDisk} {
		if err = step(ctx); err != nil {
			break
		}
	}

	if err := errors.Join(err, t.stopFlows(ctx, flows, t.phases)); err != nil {
		return err
	}

	after, err := t.onNodes(ctx, "ovn-controller")
	if err != nil {
		return err
	}

	for node, id := range before {
		if after[node] != id {
			return fmt.Errorf("ovn-controller of %s is container %q, before %q", node, after[node], id)
		}
	}

	return t.removeFlows(ctx)
}

// onNodes returns the ID of a container of ovn-ebpf-ovn-controller by node.
func (t *central) onNodes(ctx context.Context, container string) (map[string]string, error) {
	pods, err := t.pods(ctx)
	if err != nil {
		return nil, err
	}

	out := map[string]string{}

	for _, p := range pods["ovn-ebpf-ovn-controller"] {
		for _, s := range p.Status.ContainerStatuses {
			if s.Name == container {
				out[p.Spec.NodeName] = s.ContainerID
			}
		}
	}

	if len(out) != t.opts.Nodes {
		return nil, fmt.Errorf("%d containers %s", len(out), container)
	}

	return out, nil
}

// renewNode gives the second node a certificate that is valid for two minutes, and waits for the
// next.
func (t *central) renewNode(ctx context.Context) error {
	t.phase("a node's certificate is renewed")

	_, err := t.client.AppsV1().Deployments("ovn-ebpf").Patch(ctx, "ovn-ebpf-certificates", types.JSONPatchType, []byte(shortLives), metav1.PatchOptions{})
	if err != nil {
		return err
	}

	if _, err := t.kubectl(ctx, nil, "-n", "ovn-ebpf", "rollout", "status", "deployment/ovn-ebpf-certificates", "--timeout=5m"); err != nil {
		return err
	}

	node := t.lab.Node(2)

	was := t.certificate(node)
	if was == nil || was.Subject.CommonName != node.Name {
		return fmt.Errorf("certificate of %s: %v", node.Name, was)
	}

	requesters, err := t.onNodes(ctx, "certificate")
	if err != nil {
		return err
	}

	files, err := filepath.Glob(filepath.Join(t.chassisDir(node), "*"))
	if err != nil {
		return err
	}

	for _, f := range files {
		if err := os.Remove(f); err != nil {
			return err
		}
	}

	if err := killContainer(requesters[node.Name]); err != nil {
		return err
	}

	for _, what := range []string{"a certificate for two minutes", "its renewal"} {
		last := was

		err := t.await(ctx, what, func() error {
			if now := t.certificate(node); now != nil && !now.Equal(last) && time.Until(now.NotAfter) < 3*time.Minute {
				was = now
				return nil
			}

			return fmt.Errorf("%s has %s", node.Name, files)
		})
		if err != nil {
			return err
		}

		t.step("%s has %s, until %s", node.Name, what, was.NotAfter.Format(time.TimeOnly))
	}

	return nil
}

// changeAuthorities requests the next authorities and waits until a node has a certificate of the
// next one.
func (t *central) changeAuthorities(ctx context.Context) error {
	t.phase("both authorities change")

	former := map[string][]byte{}

	for _, name := range authorities {
		s, err := t.client.CoreV1().Secrets("ovn-ebpf").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}

		former[name] = s.Data["ca.crt"]
		if _, err := t.kubectl(ctx, nil, "-n", "ovn-ebpf", "patch", "secret", name, "--type=merge", "-p", `{"stringData":{"rotate":"now"}}`); err != nil {
			return err
		}
	}

	var next *x509.Certificate

	for _, name := range authorities {
		err := t.await(ctx, "the next authority of "+name, func() error {
			s, err := t.client.CoreV1().Secrets("ovn-ebpf").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}

			if bytes.Equal(s.Data["ca.crt"], former[name]) {
				return fmt.Errorf("%s signs with the former one", name)
			}

			block, _ := pem.Decode(s.Data["ca.crt"])
			next, err = x509.ParseCertificate(block.Bytes)

			return err
		})
		if err != nil {
			return err
		}

		t.step("%s signs with the next authority", name)
	}

	node := t.lab.Node(2)

	err := t.await(ctx, "a certificate of the next authority", func() error {
		now := t.certificate(node)
		if now == nil {
			return errors.New("no certificate")
		}

		return now.CheckSignatureFrom(next)
	})
	if err != nil {
		return err
	}

	t.step("%s has a certificate of the next authority", node.Name)

	return t.waitServed(ctx, "a new pod")
}

// deleteCentral deletes the pod of OVN's databases. When it is back, all ovn-controllers must
// connect with the certificates that they have now.
func (t *central) deleteCentral(ctx context.Context) error {
	t.phase("the pod of OVN's databases is deleted")

	members, err := t.members(ctx)
	if err != nil {
		return err
	}

	if err := t.client.CoreV1().Pods("ovn-ebpf").Delete(ctx, members[0].Name, metav1.DeleteOptions{}); err != nil {
		return err
	}

	waiting, err := t.probe(ctx)
	if err != nil {
		return err
	}

	err = t.await(ctx, "another pod of OVN's databases", func() error {
		now, err := t.members(ctx)
		if err == nil && now[0].UID == members[0].UID {
			err = errors.New("the former one is there")
		}

		return err
	})
	if err != nil {
		return err
	}

	if err := t.awaitReady(ctx); err != nil {
		return err
	}

	if err := t.answered(ctx, waiting, "the pod that waited"); err != nil {
		return err
	}

	for range t.opts.Nodes {
		if err := t.waitServed(ctx, "a new pod"); err != nil {
			return err
		}
	}

	return nil
}

// fillDisk fills the file system of OVN's databases. An Event must name the disk. A pod that is
// created meanwhile must wait, and get its network when there is space.
func (t *central) fillDisk(ctx context.Context) error {
	t.phase("the disk of OVN's databases is full")

	root, err := t.rootOf(t.controlPlane())
	if err != nil {
		return err
	}

	filler := filepath.Join(root, volumeDir, "filler")
	if err := os.WriteFile(filler, make([]byte, 2*volumeBytes), 0o600); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("fill %s: %w", filler, err)
	}

	waiting, err := t.probe(ctx)
	if err != nil {
		return err
	}

	err = t.await(ctx, "an Event about the disk", func() error {
		events, err := t.client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "reason=DiskFull"})
		if err != nil {
			return err
		}

		for i := range events.Items {
			e := &events.Items[i]
			if e.InvolvedObject.Name == t.controlPlane().Name && strings.Contains(e.Message, "for OVN's databases: free space there") {
				t.step("%s", e.Message)
				return nil
			}
		}

		return fmt.Errorf("%d Events DiskFull", len(events.Items))
	})
	if err != nil {
		return err
	}
	// The server that fails first has more to write than the other one.
	err = t.await(ctx, "a failed server to be restarted", func() error {
		members, err := t.members(ctx)
		if err != nil {
			return err
		}

		for _, s := range members[0].Status.ContainerStatuses {
			if s.Name == southbound.container && s.RestartCount > 0 {
				return nil
			}
		}

		return errors.New("no restart of " + southbound.container)
	})
	if err != nil {
		return err
	}

	if err := os.Remove(filler); err != nil {
		return err
	}

	if err := t.answered(ctx, waiting, "the pod that waited"); err != nil {
		return err
	}

	if err := t.awaitReady(ctx); err != nil {
		return err
	}

	return t.waitServed(ctx, "a new pod")
}

func (t *central) chassisDir(n *lab.Node) string {
	return filepath.Join(t.nodeDir(n), "var/lib/ovn-ebpf/chassis")
}

// certificate returns a node's certificate, or nil.
func (t *central) certificate(n *lab.Node) *x509.Certificate {
	file := filepath.Join(t.chassisDir(n), "ovn-controller-current.pem")
	// The link's target is a path in the container.
	target, err := os.Readlink(file)
	if err != nil {
		return nil
	}

	file = filepath.Join(t.chassisDir(n), filepath.Base(target))

	pair, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		return nil
	}

	return pair.Leaf
}
