// Package event writes Events of type Warning.
package event

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Event is a warning about an object.
type Event struct {
	About     corev1.ObjectReference
	Reason    string // a word in CamelCase, for programs
	Message   string // for people; only the first kilobyte is written
	Component string // the program that writes the Event
	Host      string // the node of that program; may be ""
}

// timeout limits a write. If it fails, the caller may repeat it, perhaps with newer content.
const timeout = 10 * time.Second

// maxText is the maximum length of a message in bytes. It is the limit of events.k8s.io/v1 (field
// note). The API server does not enforce it for the Events of core/v1 that this package writes.
const maxText = 1 << 10

// Node returns a reference to a Node by which "kubectl describe node" finds the Events. As in
// kubelet, the Node's name stands for its UID.
func Node(name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
}

// Write writes the Event. Each call creates a new one.
func Write(ctx context.Context, client kubernetes.Interface, e Event) error {
	return e.create(ctx, client, metav1.ObjectMeta{GenerateName: e.About.Name + "."})
}

// WriteOnce writes the Event, unless the API server still has the same Event of an earlier call,
// also of another process. The API server keeps Events for an hour by default.
func WriteOnce(ctx context.Context, client kubernetes.Interface, e Event) error {
	err := e.create(ctx, client, metav1.ObjectMeta{Name: e.name()})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}

	return err
}

// name returns a name that only Events with the same object, reason and message have.
func (e Event) name() string {
	sum := fnv.New64a()
	for _, part := range []string{e.About.Kind, string(e.About.UID), e.Reason, e.Message} {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}

	const maxName = 253 - len(".0123456789abcdef") // a name has at most 253 bytes

	return fmt.Sprintf("%s.%016x", e.About.Name[:min(len(e.About.Name), maxName)], sum.Sum64())
}

// create creates the Event with the name in meta.
func (e Event) create(ctx context.Context, client kubernetes.Interface, meta metav1.ObjectMeta) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	now := metav1.Now()
	text := strings.ToValidUTF8(e.Message[:min(len(e.Message), maxText)], "")
	meta.Namespace = cmp.Or(e.About.Namespace, metav1.NamespaceDefault)

	_, err := client.CoreV1().Events(meta.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: meta, InvolvedObject: e.About,
		Reason: e.Reason, Message: text, Type: corev1.EventTypeWarning,
		Source:         corev1.EventSource{Component: e.Component, Host: e.Host},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("write event %s about %s %s: %w",
			e.Reason, strings.ToLower(e.About.Kind), e.About.Name, err)
	}

	return nil
}
