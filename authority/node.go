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

// NodeDir is the directory of a node's certificate in the chart.
const NodeDir = "/var/lib/ovn-ebpf/chassis"

// NodeFile is the name of the file with a node's certificate and its key, in this order.
const NodeFile = nodeFilePrefix + "-current.pem"

// nodeFilePrefix begins the names of the files in NodeDir. The rest is client-go's.
const nodeFilePrefix = "ovn-controller"

// RunNode requests the node's certificate unless the directory has a valid one, and renews it
// before it expires, until the context ends. The file is replaced atomically. A certificate with
// another name, as on a disk that was copied from another node, is replaced as well.
//
// client-go's certificate manager logs with klog. klog has one logger for the process, which the
// caller sets.
func RunNode(ctx context.Context, client kubernetes.Interface, node, dir string, log *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create directory of certificates: %w", err)
	}

	store, err := certificate.NewFileStore(nodeFilePrefix, dir, dir, "", "")
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

	logCertificates(ctx, manager, node, log)

	return nil
}

// logCertificates logs each new certificate until the context ends.
func logCertificates(ctx context.Context, manager certificate.Manager, node string, log *slog.Logger) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()

	var logged *x509.Certificate

	for {
		if c := manager.Current(); c != nil && (logged == nil || !logged.Equal(c.Leaf)) {
			logged = c.Leaf
			log.Info("the node has its certificate", "node", node, "until", logged.NotAfter)
		}

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
