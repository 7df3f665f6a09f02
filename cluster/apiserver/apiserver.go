// Package apiserver configures the controllers' clients of the API server, and watches whether the
// API server answers.
package apiserver

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// UserAgent is the name of the controllers in requests to the API server, and in Events.
const UserAgent = "ovn-ebpf-controller"

// ControllerConfig returns the configuration of a controller's clients. They use protobuf, which
// costs the API server and the controller a fraction of JSON. They may send 200 requests per second
// instead of client-go's five, because a cold start annotates every pod. All clients that are made
// from the result share this limit.
func ControllerConfig(in *rest.Config) *rest.Config {
	c := rest.CopyConfig(in)
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c.UserAgent = UserAgent

	if c.QPS == 0 && c.RateLimiter == nil {
		c.QPS, c.Burst = 200, 400
	}

	if c.QPS > 0 && c.RateLimiter == nil {
		c.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.QPS, max(c.Burst, 1))
	}

	return c
}

// Probe asks the API server for its version every five seconds, and passes the error, or nil, to
// report. So readiness can name an API server that does not answer, because informers retry
// silently. Probe returns nil when ctx ends.
func Probe(ctx context.Context, client kubernetes.Interface, report func(error), log *slog.Logger) error {
	const interval, timeout = 5 * time.Second, 5 * time.Second
	for answers := true; ; {
		once, cancel := context.WithTimeout(ctx, timeout)
		err := client.Discovery().RESTClient().Get().AbsPath("/version").Do(once).Error()

		cancel()

		if ctx.Err() != nil {
			return nil
		}

		report(err)

		switch {
		case err != nil && answers:
			log.Warn("API server does not answer", "error", err)
		case err == nil && !answers:
			log.Info("API server answers")
		}

		answers = err == nil

		if !loop.Pause(ctx, interval) {
			return nil
		}
	}
}
