package raft

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// dial connects to an OVSDB endpoint or, as unix:, to a control socket: both speak JSON-RPC.
func dial(ctx context.Context, endpoint string, files *tls.Config) (net.Conn, error) {
	kind, address, _ := strings.Cut(endpoint, ":")
	var d net.Dialer
	switch kind {
	case "unix":
		return d.DialContext(ctx, "unix", address)
	case "ssl":
		return (&tls.Dialer{NetDialer: &d, Config: files}).DialContext(ctx, "tcp", address)
	default:
		return d.DialContext(ctx, "tcp", address)
	}
}

// call asks once: the connection is of no use after it.
func call(ctx context.Context, conn net.Conn, method string, params, result any) error {
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	const id = 1
	request, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	if err != nil {
		return err
	}
	if _, err := conn.Write(request); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	in := json.NewDecoder(conn)
	for {
		var reply struct {
			ID     any
			Method string
			Result json.RawMessage
			Error  any
		}
		if err := in.Decode(&reply); err != nil {
			return errors.Join(ctx.Err(), err)
		}
		switch {
		case reply.Method != "" || reply.ID != float64(id): // the server's own questions
		case reply.Error != nil:
			return fmt.Errorf("%s: %v", method, reply.Error)
		default:
			return json.Unmarshal(reply.Result, result)
		}
	}
}
