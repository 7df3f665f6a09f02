package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/certificate"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// serveLogs serves container logs to the API server, as kubelets do. It refuses exec, attach and
// port-forward with a hint at the replacement.
func (k *standinKubelet) serveLogs() (stop func(), err error) {
	certificate, err := selfSigned(k.node.Name)
	if err != nil {
		return nil, err
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.logs)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		what, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		pod := strings.Join(strings.SplitN(rest, "/", 3)[:min(2, strings.Count(rest, "/")+1)], "/")
		http.Error(w, fmt.Sprintf("the lab's stand-in kubelet has no %s; use 'ovnlab exec pod:%s COMMAND'", what, pod), http.StatusNotImplemented)
	})

	var listener net.Listener

	err = netns.Do(k.node.Netns, func() error {
		listener, err = net.Listen("tcp4", net.JoinHostPort(k.node.IP4.String(), strconv.Itoa(kubeletPort)))
		return err
	})
	if err != nil {
		return nil, err
	}

	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	go func() { _ = server.ServeTLS(listener, "", "") }() // ends with the kubelet

	return func() { server.Close() }, nil
}

// logs writes the log of a container, limited to tailLines if given, and continues with new content
// if follow is set.
func (k *standinKubelet) logs(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()

	var uid string

	for id, worker := range k.pods {
		if worker.key == r.PathValue("namespace")+"/"+r.PathValue("pod") {
			uid = string(id)
		}
	}
	k.mu.Unlock()

	b, err := os.ReadFile(k.containerFile(uid, r.PathValue("container"), ".log"))
	if uid == "" || err != nil {
		http.Error(w, "no log: the container was not started here", http.StatusNotFound)
		return
	}

	from := 0

	if n, err := strconv.Atoi(r.URL.Query().Get("tailLines")); err == nil {
		lines := strings.SplitAfter(string(b), "\n")
		kept := strings.Join(lines[max(0, len(lines)-1-n):], "")
		from = len(b) - len(kept)
	}

	if _, err := w.Write(b[from:]); err != nil || r.URL.Query().Get("follow") != "true" {
		return
	}

	k.follow(r.Context(), w, k.containerFile(uid, r.PathValue("container"), ".log"), int64(len(b)))
}

func (k *standinKubelet) follow(ctx context.Context, w http.ResponseWriter, path string, at int64) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()

	for {
		b, err := os.ReadFile(path)
		if err != nil || int64(len(b)) < at {
			return // the pod is gone
		}

		if _, err := w.Write(b[at:]); err != nil {
			return
		}

		at = int64(len(b))
		_ = http.NewResponseController(w).Flush() // the next write reports a lost client

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func selfSigned(name string) (tls.Certificate, error) {
	pair, err := certificate.New(&x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}}, nil)
	if err != nil {
		return tls.Certificate{}, err
	}

	return tls.Certificate{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key}, nil
}
