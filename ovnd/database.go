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

// inactivityProbe is the time without a message after which a server checks that its client is
// alive, in milliseconds. With the default of 5 s, it would drop clients that compute for longer.
const inactivityProbe = 60000

// electionTimer is the time without a leader's message after which members elect another leader, in
// milliseconds. With the default of 1 s, a slow disk or a large transaction causes an election.
const electionTimer = 10000

// Database prepares this member's database and returns its server's command line. If the database
// is missing, this member creates it or joins the others (joinsOthers).
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
			// The server listens at its unix socket (punix:) and over TLS (pssl:).
			"p" + c.socket(d): map[string]any{"inactivity-probe": inactivityProbe},
			c.listen(d.port):  map[string]any{"inactivity-probe": inactivityProbe, "read-only": d.readOnly},
		},
		"databases": map[string]any{file: map[string]any{}},
	})
}

// Relay returns the command line of the server through which nodes reach the Southbound database.
// OVN's role ovn-controller restricts its clients. The relay trusts another authority than the
// members do. So a node's certificate opens only this port, and not the ports of the members.
func (c Central) Relay(ctx context.Context, _ *slog.Logger) ([]string, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}

	southbound := Databases()[1]

	return c.server(ctx, relayName, map[string]any{
		"remotes": map[string]any{
			c.listen(NodePort): map[string]any{"inactivity-probe": inactivityProbe, "role": "ovn-controller"},
			// The local socket is for probes.
			"punix:" + filepath.Join(c.RunDir, relayName+".sock"): map[string]any{"read-only": true},
		},
		"databases": map[string]any{southbound.Name: map[string]any{
			"service-model": "relay",
			"source":        map[string]any{c.socket(southbound): map[string]any{"inactivity-probe": inactivityProbe}},
		}},
	})
}

// server writes the configuration file of an ovsdb-server and returns its command line. The file is
// JSON (--config-file in ovsdb-server(1)): the objects remotes and databases have the options of
// each address and of each database.
func (c Central) server(ctx context.Context, name string, config map[string]any) ([]string, error) {
	if _, err := run(ctx, "ovsdb-server", "--config-file=/dev/null", "--version"); err != nil {
		return nil, fmt.Errorf("start %s: ovsdb-server has no --config-file, without which it cannot restrict clients: Open vSwitch 3.3 or newer is needed: %w",
			name, err)
	}

	path := filepath.Join(c.RunDir, name)

	text, err := json.Marshal(config)
	if err == nil {
		err = atomicfile.Write(path+".json", text, 0o644)
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

	return append(append(argv, c.TLS.options()...), logOptions...), nil
}

// listen returns the remote at which a server of this member listens for clients over TLS.
func (c Central) listen(port uint16) string {
	if c.Address.Is6() {
		return fmt.Sprintf("pssl:%d:[%s]", port, c.Address)
	}

	return fmt.Sprintf("pssl:%d:%s", port, c.Address)
}

// create makes the database's file: the first one of a new cluster, or one that joins the other
// members. The file appears under its name when it is complete.
func (c Central) create(ctx context.Context, d Database, file string, log *slog.Logger) error {
	// A process that was interrupted leaves a file that nothing reads.
	unfinished := file + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("create %s: %w", d.Name, err)
	}

	joins, err := c.joinsOthers(ctx, d, log)
	if err != nil {
		return fmt.Errorf("create %s: %w", d.Name, err)
	}

	self := remote(c.Address, d.raft)
	argv := []string{
		"ovsdb-tool",
		"--election-timer=" + strconv.Itoa(electionTimer),
		"create-cluster",
		unfinished,
		schemaPath(d.schema),
		self,
	}

	if joins {
		argv = []string{"ovsdb-tool", "join-cluster", unfinished, d.Name, self}
		for _, m := range c.others() {
			argv = append(argv, remote(m, d.raft))
		}
	}

	log.Info("database missing", "database", d.Name, "join", joins)

	if _, err := run(ctx, argv...); err != nil {
		return fmt.Errorf("create %s: %w", d.Name, err)
	}

	if err := os.Rename(unfinished, file); err != nil {
		return fmt.Errorf("create %s: %w", d.Name, err)
	}

	return nil
}

// joinsOthers reports whether this member joins the others. Only the first member creates a
// cluster, when all other members have answered that they are in none. Until then it waits.
func (c Central) joinsOthers(ctx context.Context, d Database, log *slog.Logger) (joins bool, err error) {
	if c.Address != c.Members[0] {
		return true, nil
	}

	logged := ""
	err = await(ctx, func() error {
		var err error
		if joins, err = c.othersHaveCluster(ctx, d); err != nil && err.Error() != logged {
			logged = err.Error()
			log.Warn("waiting for the other members", "database", d.Name, "error", err)
		}

		return err
	})

	return joins, err
}

// othersHaveCluster reports whether another member is in a cluster. If the first member has lost
// its disk, it must join this cluster: a new one would be a second cluster, without data. So it is
// an error if a member does not answer, unless another one is in a cluster.
func (c Central) othersHaveCluster(ctx context.Context, d Database) (bool, error) {
	var errs []error

	for _, m := range c.others() {
		id, err := c.clusterID(ctx, d, m)
		if err == nil && id != "" {
			return true, nil
		}

		errs = append(errs, err)
	}

	return false, errors.Join(errs...)
}

// clusterID returns the ID of the cluster that a member is in, or "". The member's server has it in
// the column cid of the table Database in the database _Server (ovsdb-server(5)).
func (c Central) clusterID(ctx context.Context, d Database, member netip.Addr) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	query := fmt.Sprintf(`["_Server",{"op":"select","table":"Database","where":[["name","==",%q]],"columns":["cid"]}]`,
		d.Name)

	argv := append([]string{"ovsdb-client"}, c.TLS.options()...)

	out, err := run(ctx, append(argv, "query", remote(member, d.port), query)...)
	if err != nil {
		return "", err
	}

	return parseClusterID(out)
}

// noCluster is the cluster ID of a member that waits to join.
const noCluster = "00000000-0000-0000-0000-000000000000"

// parseClusterID returns the ID in the answer to clusterID's query, or "". The column is an
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

	for _, result := range results {
		for _, row := range result.Rows {
			if len(row.CID) == 2 && row.CID[0] == "uuid" && row.CID[1] != noCluster {
				id, _ := row.CID[1].(string)
				return id, nil
			}
		}
	}

	return "", nil
}
