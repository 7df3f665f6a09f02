// Package cni is the call from the CNI plugin to the node's agent: one HTTP
// request over a unix socket, carrying what the runtime gave the plugin.
package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/containernetworking/cni/pkg/types"
)

// DefaultSocket is the agent's.
const DefaultSocket = "/run/ovn-ebpf/cni.sock"

// Path is the request's.
const Path = "/v1/cni"

// Request is one invocation of the plugin.
type Request struct {
	Command     string          `json:"command"` // ADD, DEL, CHECK
	ContainerID string          `json:"containerID"`
	Netns       string          `json:"netns,omitempty"`
	Interface   string          `json:"interface"`
	Args        string          `json:"args,omitempty"`   // CNI_ARGS: K8S_POD_NAME=a;...
	Config      json.RawMessage `json:"config,omitempty"` // the plugin's stdin
}

// Response has a result after a successful ADD and an error after a failure.
type Response struct {
	Result json.RawMessage `json:"result,omitempty"` // of the configuration's cniVersion
	Error  *types.Error    `json:"error,omitempty"`
}

// NetConf is the plugin's configuration.
type NetConf struct {
	types.PluginConf
	ServerSocket string `json:"serverSocket,omitempty"`
}

// ParseNetConf reads the plugin's configuration; the socket has its default.
func ParseNetConf(b []byte) (NetConf, error) {
	conf := NetConf{ServerSocket: DefaultSocket}
	if err := json.Unmarshal(b, &conf); err != nil {
		return conf, fmt.Errorf("parse CNI configuration: %w", err)
	}
	return conf, nil
}

// Call sends the request to the agent that listens on socket. The error is
// the agent's own where it answered, else it says that the agent cannot be
// reached, which a runtime tries again.
func Call(ctx context.Context, socket string, req Request) (Response, error) {
	var resp Response
	body, err := json.Marshal(req)
	if err != nil {
		return resp, fmt.Errorf("encode CNI request: %w", err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent"+Path, bytes.NewReader(body))
	if err != nil {
		return resp, fmt.Errorf("build CNI request: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return resp, types.NewError(types.ErrTryAgainLater, "call the node's agent on "+socket, err.Error())
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		return resp, types.NewError(types.ErrTryAgainLater, "read the agent's answer", err.Error())
	}
	if err := json.Unmarshal(raw, &resp); err != nil {
		return resp, fmt.Errorf("parse the agent's answer %q (%s): %w", raw, answer.Status, err)
	}
	if resp.Error != nil {
		return resp, resp.Error
	}
	return resp, nil
}
