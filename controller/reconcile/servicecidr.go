package reconcile

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// followServiceCIDRs follows the API server's service networks until ctx ends. An API server
// before 1.33 has none: it is asked again every few minutes, for it may be updated. Readiness does
// not wait for them: nothing is written that depends on them.
func (l *Loop) followServiceCIDRs(ctx context.Context) {
	const soon, late = 5 * time.Second, 5 * time.Minute
	said := ""
	for {
		_, err := l.client.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			l.serviceCIDRs.RunWithContext(ctx)
			return
		}
		again, text := soon, err.Error()
		if apierrors.IsNotFound(err) {
			again, text = late, "the API server has no ServiceCIDRs"
		}
		if text != said && ctx.Err() == nil {
			l.log.Warn("service networks are not compared with the API server's", "reason", text)
			said = text
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}
