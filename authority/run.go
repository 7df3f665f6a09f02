package authority

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// period is how often the certificates are checked. A deleted Secret is restored after it.
const period = time.Minute

// issued is the annotation of the objects that this package created. It changes no others.
const issued = "ovn-ebpf.io/issued"

// Trust is the ConfigMap with the certificates by which nodes know the databases, in its key
// TrustFile.
const (
	Trust     = "ovn-ebpf-ca"
	TrustFile = "cacert.pem"
)

// former is the Secret with one certificate for all nodes, of releases before the CSR API's.
const former = "ovn-ebpf-chassis"

// Authority issues certificates.
type Authority struct {
	Client    kubernetes.Interface
	Namespace string        // of the Secrets
	Handover  time.Duration // between the publication of an authority and its first signature
	NodeLife  time.Duration // of nodes' certificates
	Log       *slog.Logger
}

// New returns an authority with defaults, without client and log.
func New() *Authority {
	return &Authority{Namespace: "ovn-ebpf", Handover: Handover, NodeLife: life}
}

// Run keeps the Secrets of the namespace right and answers nodes' requests until the context ends.
func (a *Authority) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.serve(ctx) })
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{
			Name:   "certificates",
			Apply:  a.Sync,
			Resync: min(period, a.Handover),
			Log:    a.Log,
		})
	})

	return group.Wait()
}

// Sync renews the Secrets once. It writes an authority before its signatures, because clients must
// trust the authority first. Writes name the version that was read, so that two concurrent calls do
// not mix. If one of the Secrets was created by others, Sync returns an error and writes nothing.
func (a *Authority) Sync(ctx context.Context) error {
	client := a.Client.CoreV1().Secrets(a.Namespace)
	have, read := Data{}, map[string]*corev1.Secret{}

	for _, name := range secrets() {
		s, err := client.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}

		if err != nil {
			return fmt.Errorf("read Secret %s: %w", name, err)
		}

		if err := created("Secret", s); err != nil {
			return err
		}

		have[name], read[name] = s.Data, s
	}

	want, err := Renew(time.Now(), a.Handover, have)
	if err != nil {
		return err
	}

	for _, name := range secrets() {
		data, changed := want[name]
		if !changed {
			continue
		}

		if s := read[name]; s != nil {
			s.Data = data
			_, err = client.Update(ctx, s, metav1.UpdateOptions{})
		} else {
			_, err = client.Create(ctx, &corev1.Secret{ObjectMeta: a.meta(name), Data: data},
				metav1.CreateOptions{})
		}

		if err != nil {
			return fmt.Errorf("write Secret %s: %w", name, err)
		}

		a.Log.Info("certificate issued", "secret", name, "keys", slices.Sorted(maps.Keys(data)))
	}

	maps.Copy(have, want)

	return errors.Join(a.publish(ctx, string(have[holders()[0].secret]["cacert.pem"])), a.deleteFormer(ctx))
}

// publish writes the certificates by which nodes know the databases.
func (a *Authority) publish(ctx context.Context, trusted string) error {
	client := a.Client.CoreV1().ConfigMaps(a.Namespace)

	c, err := client.Get(ctx, Trust, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = client.Create(ctx,
			&corev1.ConfigMap{ObjectMeta: a.meta(Trust), Data: map[string]string{TrustFile: trusted}},
			metav1.CreateOptions{})
	case err == nil && c.Data[TrustFile] != trusted:
		if err = created("ConfigMap", c); err == nil {
			c.Data = map[string]string{TrustFile: trusted}
			_, err = client.Update(ctx, c, metav1.UpdateOptions{})
		}
	}

	if err != nil {
		return fmt.Errorf("publish ConfigMap %s: %w", Trust, err)
	}

	return nil
}

// deleteFormer deletes the Secret whose certificate was every node's.
func (a *Authority) deleteFormer(ctx context.Context) error {
	client := a.Client.CoreV1().Secrets(a.Namespace)

	s, err := client.Get(ctx, former, metav1.GetOptions{})
	if err == nil && created("Secret", s) == nil {
		err = client.Delete(ctx, former, metav1.DeleteOptions{})
	}

	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Secret %s: %w", former, err)
	}

	return nil
}

// created returns an error if this package did not create the object.
func created(kind string, o metav1.Object) error {
	if o.GetAnnotations()[issued] != "true" {
		return fmt.Errorf("renew %s %s: ovn-ebpf did not create it (no annotation %s): set ovn.host=true if the databases are not the chart's, else delete it",
			kind, o.GetName(), issued)
	}

	return nil
}

func (a *Authority) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:        name,
		Namespace:   a.Namespace,
		Annotations: map[string]string{issued: "true"},
	}
}
