package ovnd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
)

// probe is the time without a message after which a database asks whether its client is there. The
// default of 5 s drops clients that compute for longer. Milliseconds.
const probe = 60000

// electionTimer is the time without a leader's message after which members elect another one. With
// the default of 1 s a slow disk or a large transaction costs an election. Milliseconds.
const electionTimer = 10000

// Database prepares this member's database and returns its server's command line. A missing
// database is created on the first member, once every other member says that it has none. If
// another member has one, and on all other members, it joins them.
func (c Central) Database(ctx context.Context, d Database, log *slog.Logger) ([]string, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}

	file := filepath.Join(c.Dir, d.file+".db")
	for _, dir := range []string{c.Dir, c.RunDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("start %s: %w", d.Name, err)
		}
	}

	if err := c.awaitSpace(ctx, log); err != nil {
		return nil, fmt.Errorf("start %s: %w", d.Name, err)
	}

	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		if err := c.create(ctx, d, file, log); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, fmt.Errorf("start %s: %w", d.Name, err)
	}

	return c.server(ctx, d.file, map[string]any{
		"remotes": map[string]any{
			"p" + c.socket(d): map[string]any{"inactivity-probe": probe},
			c.listen(d.port):  map[string]any{"inactivity-probe": probe, "read-only": d.readOnly},
		},
		"databases": map[string]any{file: map[string]any{}},
	})
}

// Relay returns the command line of the server through which nodes reach the Southbound database.
// OVN's role ovn-controller restricts its clients. The relay has a list of authorities of its own:
// a node's certificate therefore opens this port alone, and not the ports between the members.
func (c Central) Relay(ctx context.Context, _ *slog.Logger) ([]string, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}

	southbound := Databases()[1]

	return c.server(ctx, relayName, map[string]any{
		"remotes": map[string]any{
			c.listen(NodePort): map[string]any{"inactivity-probe": probe, "role": "ovn-controller"},
			// The local socket is for probes.
			"punix:" + filepath.Join(c.RunDir, relayName+".sock"): map[string]any{"read-only": true},
		},
		"databases": map[string]any{southbound.Name: map[string]any{
			"service-model": "relay",
			"source":        map[string]any{c.socket(southbound): map[string]any{"inactivity-probe": probe}},
		}},
	})
}

// server writes the configuration of an ovsdb-server and returns its command line.
func (c Central) server(ctx context.Context, name string, config map[string]any) ([]string, error) {
	if _, err := run(ctx, "ovsdb-server", "--config-file=/dev/null", "--version"); err != nil {
		return nil, fmt.Errorf("start %s: ovsdb-server has no --config-file, without which it cannot restrict clients: Open vSwitch 3.3 or newer is needed: %w",
			name, err)
	}

	path := filepath.Join(c.RunDir, name)

	b, err := json.Marshal(config)
	if err == nil {
		err = atomicfile.Write(path+".json", b, 0o644)
	}

	if err != nil {
		return nil, fmt.Errorf("write configuration of %s: %w", name, err)
	}

	argv := []string{
		"ovsdb-server",
		"--unixctl=" + path + ".ctl",
		"--pidfile=" + path + ".pid",
		"--config-file=" + path + ".json",
	}

	return append(append(argv, c.TLS.options()...), logging...), nil
}

func (c Central) listen(port uint16) string {
	if c.Address.Is6() {
		return fmt.Sprintf("pssl:%d:[%s]", port, c.Address)
	}

	return fmt.Sprintf("pssl:%d:%s", port, c.Address)
}

// create makes the database's file, in one step.
func (c Central) create(ctx context.Context, d Database, file string, log *slog.Logger) error {
	// A member whose process ended half-way leaves a file that nothing reads.
	half := file + ".new"
	if err := os.RemoveAll(half); err != nil {
		return fmt.Errorf("create %s: %w", d.Name, err)
	}

	self := remote(c.Address, d.raft)
	argv := []string{
		"ovsdb-tool",
		"--election-timer=" + strconv.Itoa(electionTimer),
		"create-cluster",
		half,
		schemaPath(d.schema),
		self,
	}

	joins := c.Address != c.Members[0]
	if !joins {
		var err error
		if joins, err = c.awaitClustered(ctx, d, log); err != nil {
			return fmt.Errorf("create %s: %w", d.Name, err)
		}
	}

	if joins {
		argv = []string{"ovsdb-tool", "join-cluster", half, d.Name, self}
		for _, m := range c.others() {
			argv = append(argv, remote(m, d.raft))
		}
	}

	log.Info("database missing", "database", d.Name, "join", joins)

	if _, err := run(ctx, argv...); err != nil {
		return fmt.Errorf("create %s: %w", d.Name, err)
	}

	if err := os.Rename(half, file); err != nil {
		return fmt.Errorf("create %s: %w", d.Name, err)
	}

	return nil
}

// awaitClustered waits until clustered knows.
func (c Central) awaitClustered(ctx context.Context, d Database, log *slog.Logger) (joins bool, err error) {
	last := ""
	err = await(ctx, func() (err error) {
		if joins, err = c.clustered(ctx, d); err != nil && err.Error() != last {
			last = err.Error()
			log.Warn("waiting for the other members", "database", d.Name, "error", err)
		}

		return err
	})

	return joins, err
}

// clustered reports whether another member is in a cluster. A first member that lost its disk must
// join, or there would be a second cluster, which is empty. So a member that does not answer is an
// error, unless another one is in a cluster.
func (c Central) clustered(ctx context.Context, d Database) (bool, error) {
	var failed []error

	for _, m := range c.others() {
		id, err := c.clusterID(ctx, d, m)
		if err == nil && id != "" {
			return true, nil
		}

		failed = append(failed, err)
	}

	return false, errors.Join(failed...)
}

func (c Central) clusterID(ctx context.Context, d Database, m netip.Addr) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	query := fmt.Sprintf(`["_Server",{"op":"select","table":"Database","where":[["name","==",%q]],"columns":["cid"]}]`,
		d.Name)

	argv := append([]string{"ovsdb-client"}, c.TLS.options()...)

	out, err := run(ctx, append(argv, "query", remote(m, d.port), query)...)
	if err != nil {
		return "", err
	}

	return parseClusterID(out)
}

// unjoined is the cluster id of a member that waits to join.
const unjoined = "00000000-0000-0000-0000-000000000000"

// parseClusterID returns the id in the answer to clusterID's query, or "". The column is an
// optional uuid: ["uuid",ID], or an empty set.
func parseClusterID(answer []byte) (string, error) {
	var results []struct {
		Rows []struct {
			CID []any `json:"cid"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(answer, &results); err != nil {
		return "", fmt.Errorf("parse answer %q: %w", answer, err)
	}

	for _, r := range results {
		for _, row := range r.Rows {
			if len(row.CID) == 2 && row.CID[0] == "uuid" && row.CID[1] != unjoined {
				id, _ := row.CID[1].(string)
				return id, nil
			}
		}
	}

	return "", nil
}
