package underlay

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cniconf"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/pool"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/metric/endpoint"
)

// Config is the agent's configuration.
type Config struct {
	NodeName   string
	RestConfig *rest.Config

	Interface string        // the VM's NIC; "": that of the default route
	VIF       string        // UUID of the NIC's Neutron port; "": the controller finds it by MAC and address
	Rest      time.Duration // how long a port rests after its pod has gone

	PinDir, RunDir string
	CNISocket      string
	CNIConfDir     string // "": no configuration is written
	CNIExclusive   bool   // set aside the configurations of other networks in CNIConfDir
	MetricsAddr    string // "": not served
	MetricsTLS     endpoint.TLS

	// Begun, if not nil, is called when Run starts to work. missing returns what the node still
	// needs to become ready, or "".
	Begun func(missing func() string) `json:"-"`
}

// Validate returns all mistakes joined; each names its field.
func (c Config) Validate() error {
	var errs []error

	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if c.NodeName == "" {
		bad("node name: empty")
	}

	if c.RestConfig == nil {
		bad("kubeconfig: none given")
	}

	if c.VIF != "" {
		if err := annotation.CheckUUID(c.VIF); err != nil {
			bad("VIF: %w", err)
		}
	}

	if c.Rest < 0 {
		bad("rest of ports %s: negative", c.Rest)
	}

	for _, d := range []struct{ name, path string }{
		{"pin directory", c.PinDir}, {"run directory", c.RunDir}, {"CNI socket", c.CNISocket},
	} {
		if !filepath.IsAbs(d.path) {
			bad("%s %q: not an absolute path", d.name, d.path)
		}
	}

	if c.MetricsAddr != "" {
		if _, _, err := net.SplitHostPort(c.MetricsAddr); err != nil {
			bad("metrics address: %w", err)
		}
	}

	return errors.Join(append(errs, c.MetricsTLS.Validate())...)
}

// records returns the directory of podnet's records, which is emptied at boot.
func (c Config) records() string { return filepath.Join(c.RunDir, podnet.RecordDir) }

// stateFile returns the path of the pool's state.
func (c Config) stateFile() string { return filepath.Join(c.RunDir, "pool.json") }

// configMap names the ConfigMap with the node's pool, for messages.
func (c Config) configMap() string {
	return fmt.Sprintf("ConfigMap %s/%s%s", annotation.PoolNamespace, annotation.PoolPrefix, c.NodeName)
}

// record returns the configuration for "ovnkube status".
func (c Config) record() status.Record {
	r := status.Record{
		Node:    c.NodeName,
		Started: time.Now().UTC().Truncate(time.Second),
		Wiring:  status.Wiring{Mode: status.ModeUnderlay},
		Paths: status.Paths{
			PinDir:     c.PinDir,
			RunDir:     c.RunDir,
			Metrics:    c.MetricsAddr,
			MetricsTLS: c.MetricsTLS.On(),
			CNISocket:  c.CNISocket,
		},
	}
	if c.CNIConfDir != "" {
		r.Paths.ConfList = filepath.Join(c.CNIConfDir, cniconf.File)
	}

	return r
}

// Fail records for "ovnkube status" the error with which the agent has ended. The configuration may
// be invalid.
func (c Config) Fail(failure error) error {
	r := c.record()
	r.Wiring = status.Wiring{} // the agent has not got to work
	r.Failure = failure.Error()

	return status.Complete(c.RunDir, r)
}

// Pool returns the ports of the node's pool as the agent knows them. It reads the agent's records
// and the last valid ConfigMap, so it works without an agent and without the API server.
func Pool(runDir, node string, rest time.Duration, now time.Time) ([]pool.Status, error) {
	cfg := Config{NodeName: node, RunDir: runDir, Rest: rest}

	p, err := openPorts(cfg, now, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}

	return p.pool.Ports(now), nil
}
