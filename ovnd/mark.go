package ovnd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// mark is the key of external_ids in each Open vSwitch database that ovnd created. A database
// without it is the node's own, which ovnd must not change.
const mark = "ovn-ebpf.io/managed"

// Requests and parts of them, in the syntax of OVSDB (RFC 7047). insertRow makes the first row,
// with the mark. findRow finds a row with the mark.
const (
	markMap   = `["map",[["` + mark + `","true"]]]`
	insertRow = `["Open_vSwitch",{"op":"insert","table":"Open_vSwitch","row":{"external_ids":` + markMap + `}}]`
	findRow   = `["Open_vSwitch",{"op":"select","table":"Open_vSwitch","where":[["external_ids","includes",` + markMap + `]],"columns":["_uuid"]}]`
)

// errForeign is the error for a database without the mark.
var errForeign = errors.New("it is not ovn-ebpf's (external_ids have no " + mark + "): set ovs.host=true where the node has its own Open vSwitch")

// checkMarked returns errForeign unless the answer to findRow has a row.
func checkMarked(answer []byte) error {
	var results []struct {
		Rows []json.RawMessage `json:"rows"`
	}
	if err := json.Unmarshal(answer, &results); err != nil {
		return fmt.Errorf("parse answer %q: %w", answer, err)
	}

	if len(results) == 0 || len(results[0].Rows) == 0 {
		return errForeign
	}

	return nil
}

// checkFile returns an error if the database's file exists and is not marked. It reads the file
// itself, so that a server need not run.
func (s Switch) checkFile(ctx context.Context) error {
	if _, err := os.Stat(s.file()); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}

	out, err := run(ctx, "ovsdb-tool", "query", s.file(), findRow)
	if err == nil {
		err = checkMarked(out)
	}

	if err != nil {
		return fmt.Errorf("check %s: %w", s.file(), err)
	}

	return nil
}

// checkServer waits until a server answers at the socket, and returns an error if its database is
// not marked.
func (s Switch) checkServer(ctx context.Context) error {
	var out []byte

	err := await(ctx, func() (err error) {
		out, err = run(ctx, "ovsdb-client", "--timeout=5", "query", s.remote(), findRow)
		return err
	})
	if err == nil {
		err = checkMarked(out)
	}

	if err != nil {
		return fmt.Errorf("check Open vSwitch's database at %s: %w", s.remote(), err)
	}

	return nil
}

// checkUnused returns an error if a server listens at the socket already: a second one would take
// the socket from it.
func (s Switch) checkUnused() error {
	path := filepath.Join(s.RunDir, "db.sock")

	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil // no server
	}

	errUsed := fmt.Errorf("another Open vSwitch serves at %s: set ovs.host=true where the node has its own", path)

	return errors.Join(errUsed, conn.Close())
}
