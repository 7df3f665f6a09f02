package authority

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"os"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"
)

// NodeDir is the directory of a node's certificate, where the chart brings it.
const NodeDir = "/var/lib/ovn-ebpf/chassis"

// NodeFile is the name of the file with a node's certificate and its key, in this order.
const NodeFile = nodePair + "-current.pem"

const nodePair = "ovn-controller"

// RunNode requests the node's certificate unless the directory has a valid one, and renews it
// before it expires, until the context ends. Its file is replaced at once. A certificate with
// another name, as on a disk that was copied from another node, is replaced, too.
//
// client-go's certificate manager logs by klog. Its logger is the process's, so only main may set it.
func RunNode(ctx context.Context, client kubernetes.Interface, node, dir string, log *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create directory of certificates: %w", err)
	}

	store, err := certificate.NewFileStore(nodePair, dir, dir, "", "")
	if err != nil {
		return fmt.Errorf("open certificates in %s: %w", dir, err)
	}

	name := pkix.Name{CommonName: node}

	manager, err := certificate.NewManager(&certificate.Config{
		Name:             "node",
		SignerName:       SignerName,
		CertificateStore: store,
		ClientsetFn:      func(*tls.Certificate) (kubernetes.Interface, error) { return client, nil },
		// With a function, the manager replaces a certificate with another name.
		GetTemplate: func() *x509.CertificateRequest { return &x509.CertificateRequest{Subject: name} },
		Usages: []certificatesv1.KeyUsage{
			certificatesv1.UsageDigitalSignature,
			certificatesv1.UsageClientAuth,
		},
		Ctx: &ctx,
	})
	if err != nil {
		return fmt.Errorf("manage certificate of node %q: %w", node, err)
	}

	manager.Start()
	defer manager.Stop()

	report(ctx, manager, node, log)

	return nil
}

// report logs each new certificate until the context ends.
func report(ctx context.Context, manager certificate.Manager, node string, log *slog.Logger) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()

	var last *x509.Certificate
	for {
		if c := manager.Current(); c != nil && (last == nil || !last.Equal(c.Leaf)) {
			last = c.Leaf
			log.Info("the node has its certificate", "node", node, "until", last.NotAfter)
		}

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
