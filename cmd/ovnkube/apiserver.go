package main

import (
	"fmt"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
)

// apiServer is the access to the API server: a kubeconfig, or a URL with a token and a CA. If all
// fields are empty, it is the service account of the pod.
type apiServer struct {
	kubeconfig       string // path
	url              string
	token, tokenFile string // tokenFile takes precedence
	caFile           string // path, or the certificate itself in PEM
}

func (a *apiServer) settings() []*setting.Setting {
	return []*setting.Setting{
		{
			Flag:    "kubeconfig",
			Section: "kubernetes",
			Key:     "kubeconfig",
			Env:     "KUBECONFIG",
			Value:   setting.Text(&a.kubeconfig),
			About:   []string{"kubeconfig"},
			Usage: "`file` with the API server's address and credentials; default: the pod's service " +
				"account",
		},
		{
			Flag:       "k8s-apiserver",
			Section:    "kubernetes",
			Key:        "apiserver",
			Env:        "K8S_APISERVER",
			ExternalID: "k8s-api-server",
			Value:      serverURL{&a.url},
			Usage:      "`URL` of the API server. HOST:PORT means plain HTTP",
		},
		{
			Flag:       "k8s-token",
			Section:    "kubernetes",
			Key:        "token",
			Env:        "K8S_TOKEN",
			ExternalID: "k8s-api-token",
			Secret:     true,
			Value:      setting.Text(&a.token),
			Usage:      "bearer `token` for --k8s-apiserver",
		},
		{
			Flag:    "k8s-token-file",
			Section: "kubernetes",
			Key:     "tokenfile",
			Env:     "K8S_TOKEN_FILE",
			Value:   setting.Text(&a.tokenFile),
			Usage: "`file` with the bearer token for --k8s-apiserver. The file is read again " +
				"periodically. It takes precedence over --k8s-token",
		},
		{
			Flag:       "k8s-cacert",
			Section:    "kubernetes",
			Key:        "cacert",
			Env:        "K8S_CACERT",
			ExternalID: "k8s-ca-certificate",
			Value:      setting.Text(&a.caFile),
			Usage: "`file` with the CA certificate of --k8s-apiserver, or the certificate itself in " +
				"PEM format",
		},
	}
}

// isPEM reports whether the value of --k8s-cacert is a certificate instead of a file name.
func isPEM(ca string) bool { return strings.HasPrefix(ca, "-----BEGIN ") }

// pemText returns a certificate whose line breaks may be written as \n, as ovs-vsctl shows them.
func pemText(ca string) []byte { return []byte(strings.ReplaceAll(ca, `\n`, "\n")) }

// restConfig returns the configuration of the API server's client.
func (a *apiServer) restConfig() (*rest.Config, error) {
	switch {
	case a.kubeconfig != "":
		config, err := clientcmd.BuildConfigFromFlags(a.url, a.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig %q: %w", a.kubeconfig, err)
		}

		return config, nil
	case a.url != "":
		config := &rest.Config{
			Host:            a.url,
			BearerToken:     a.token,
			BearerTokenFile: a.tokenFile,
			TLSClientConfig: rest.TLSClientConfig{CAFile: a.caFile},
		}
		if isPEM(a.caFile) {
			config.TLSClientConfig = rest.TLSClientConfig{CAData: pemText(a.caFile)}
		}

		return config, nil
	}

	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("reach the API server: no --kubeconfig, no --k8s-apiserver, and %w", err)
	}

	return config, nil
}
