package authority

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// period is how often the certificates are looked at. A deleted Secret is back after it.
	period = time.Minute
	// again is when a failure is followed by the next attempt.
	again = 2 * time.Second
)

// issued is the annotation of the Secrets that this package created. It changes no others.
const issued = "ovn-ebpf.io/issued"

// Run keeps the Secrets of the namespace right until the context ends.
func Run(ctx context.Context, client kubernetes.Interface, namespace string, log *slog.Logger) error {
	for {
		wait := period
		if err := Sync(ctx, client, namespace, log); err != nil && ctx.Err() == nil {
			log.Error("certificates not renewed", "err", err)
			wait = again
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Sync renews the Secrets once. The authority is written first: what it signs must be trusted.
// Writes name the version that was read, so that two that run at once do not mix. If one of the Secrets
// was created by others, that is an error and nothing is written.
func Sync(ctx context.Context, client kubernetes.Interface, namespace string, log *slog.Logger) error {
	secrets := client.CoreV1().Secrets(namespace)
	have, read := Data{}, map[string]*corev1.Secret{}
	for _, name := range Secrets() {
		s, err := secrets.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read Secret %s: %w", name, err)
		}
		if s.Annotations[issued] != "true" {
			return fmt.Errorf("renew Secret %s: ovn-ebpf did not create it (no annotation %s): set ovn.host=true if the databases are not the chart's, else delete it", name, issued)
		}
		have[name], read[name] = s.Data, s
	}
	want, err := Renew(time.Now(), have)
	if err != nil {
		return err
	}
	for _, name := range Secrets() {
		data, changed := want[name]
		if !changed {
			continue
		}
		if s := read[name]; s != nil {
			s.Data = data
			_, err = secrets.Update(ctx, s, metav1.UpdateOptions{})
		} else {
			_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: meta(name, namespace), Data: data}, metav1.CreateOptions{})
		}
		if err != nil {
			return fmt.Errorf("write Secret %s: %w", name, err)
		}
		log.Info("certificate issued", "secret", name, "keys", slices.Sorted(maps.Keys(data)))
	}
	return nil
}

func meta(name, namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace, Annotations: map[string]string{issued: "true"}}
}
