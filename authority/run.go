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

// resync is the time between checks of the certificates. A deleted Secret is restored after it.
const resync = time.Minute

// issuedAnnotation is the annotation of the objects that this package created. It changes no
// others.
const issuedAnnotation = "ovn-ebpf.io/issued"

// Trust is the ConfigMap with the certificates by which nodes verify the databases' servers. They
// are in its key TrustFile.
const (
	Trust     = "ovn-ebpf-ca"
	TrustFile = "cacert.pem"
)

// formerSecret is the Secret of earlier releases, with one certificate for all nodes.
const formerSecret = "ovn-ebpf-chassis"

// Authority issues certificates.
type Authority struct {
	Client    kubernetes.Interface
	Namespace string        // of the Secrets
	Handover  time.Duration // between the publication of an authority and its first signature
	NodeLife  time.Duration // maximum life of nodes' certificates
	Log       *slog.Logger
}

// New returns an authority with defaults, without client and log.
func New() *Authority {
	return &Authority{Namespace: "ovn-ebpf", Handover: Handover, NodeLife: memberLife}
}

// Run renews the Secrets of the namespace, and answers nodes' requests until the context ends.
func (a *Authority) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.answerRequests(ctx) })
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{
			Name:   "certificates",
			Apply:  a.Sync,
			Resync: min(resync, a.Handover),
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
	existing, objects := Data{}, map[string]*corev1.Secret{}

	for _, name := range secretNames() {
		s, err := client.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}

		if err != nil {
			return fmt.Errorf("read Secret %s: %w", name, err)
		}

		if err := checkOrigin("Secret", s); err != nil {
			return err
		}

		existing[name] = s.Data
		objects[name] = s
	}

	changed, err := Renew(time.Now(), a.Handover, existing)
	if err != nil {
		return err
	}

	for _, name := range secretNames() {
		data, hasChanged := changed[name]
		if !hasChanged {
			continue
		}

		if s := objects[name]; s != nil {
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

	// Nodes verify the databases' servers by the certificates that the servers trust of each other.
	maps.Copy(existing, changed)
	trusted := existing[memberSecrets()[0].name]["cacert.pem"]

	return errors.Join(a.publish(ctx, string(trusted)), a.deleteFormer(ctx))
}

// publish writes the certificates by which nodes verify the databases' servers.
func (a *Authority) publish(ctx context.Context, trusted string) error {
	client := a.Client.CoreV1().ConfigMaps(a.Namespace)

	c, err := client.Get(ctx, Trust, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = client.Create(ctx,
			&corev1.ConfigMap{ObjectMeta: a.meta(Trust), Data: map[string]string{TrustFile: trusted}},
			metav1.CreateOptions{})
	case err == nil && c.Data[TrustFile] != trusted:
		if err = checkOrigin("ConfigMap", c); err == nil {
			c.Data = map[string]string{TrustFile: trusted}
			_, err = client.Update(ctx, c, metav1.UpdateOptions{})
		}
	}

	if err != nil {
		return fmt.Errorf("publish ConfigMap %s: %w", Trust, err)
	}

	return nil
}

// deleteFormer deletes formerSecret, if this package created it.
func (a *Authority) deleteFormer(ctx context.Context) error {
	client := a.Client.CoreV1().Secrets(a.Namespace)

	s, err := client.Get(ctx, formerSecret, metav1.GetOptions{})
	if err == nil && checkOrigin("Secret", s) == nil {
		err = client.Delete(ctx, formerSecret, metav1.DeleteOptions{})
	}

	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Secret %s: %w", formerSecret, err)
	}

	return nil
}

// checkOrigin returns an error if this package did not create the object.
func checkOrigin(kind string, o metav1.Object) error {
	if o.GetAnnotations()[issuedAnnotation] != "true" {
		return fmt.Errorf("renew %s %s: ovn-ebpf did not create it (no annotation %s): set ovn.host=true if the databases are not the chart's, else delete it",
			kind, o.GetName(), issuedAnnotation)
	}

	return nil
}

// meta returns the metadata of an object that this package creates.
func (a *Authority) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:        name,
		Namespace:   a.Namespace,
		Annotations: map[string]string{issuedAnnotation: "true"},
	}
}
