// Package cni defines the protocol between the CNI plugin and the node's agent: one HTTP request
// over a unix socket for each call of the plugin. The request has the container runtime's input,
// the response the plugin's output.
package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/types"
)

// DefaultSocket is the path of the agent's socket.
const DefaultSocket = "/run/ovn-ebpf/cni.sock"

// Path is the URL path of requests.
const Path = "/v1/cni"

// Request is one invocation of the plugin.
type Request struct {
	Command     string          `json:"command"` // ADD, DEL, CHECK, GC, STATUS
	ContainerID string          `json:"containerID"`
	Netns       string          `json:"netns,omitempty"`
	Interface   string          `json:"interface"`
	Args        string          `json:"args,omitempty"`   // CNI_ARGS: K8S_POD_NAME=a;...
	Config      json.RawMessage `json:"config,omitempty"` // the plugin's stdin
}

// Response holds the result of a successful ADD, or the error of a failed command.
type Response struct {
	Result json.RawMessage `json:"result,omitempty"` // in the version of the configuration
	Error  *types.Error    `json:"error,omitempty"`
}

// NetConf is the plugin's configuration.
type NetConf struct {
	types.PluginConf
	ServerSocket string `json:"serverSocket,omitempty"`
}

// ParseNetConf parses and checks the plugin's configuration and applies the default socket. Its
// errors are of type *types.Error.
func ParseNetConf(text []byte) (NetConf, error) {
	conf := NetConf{ServerSocket: DefaultSocket}
	if err := json.Unmarshal(text, &conf); err != nil {
		return conf, types.NewError(types.ErrDecodingFailure, "parse CNI configuration: "+err.Error(),
			"correct the plugin's part of the network configuration list")
	}

	if !filepath.IsAbs(conf.ServerSocket) {
		return conf, types.NewError(types.ErrInvalidNetworkConfig,
			fmt.Sprintf("serverSocket %q is not an absolute path", conf.ServerSocket),
			"leave it out, or give the agent's --cni-socket")
	}

	if conf.IPAM.Type != "" {
		return conf, types.NewError(types.ErrInvalidNetworkConfig,
			fmt.Sprintf("ipam %q: OVN assigns the addresses of pods", conf.IPAM.Type),
			"remove ipam from the configuration")
	}

	return conf, nil
}

// Call sends the request to the agent that listens on socket. It returns the agent's own error, or
// a *types.Error if the agent is unreachable, which runtimes retry.
func Call(ctx context.Context, socket string, req Request) (Response, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return Response{}, fmt.Errorf("encode CNI request: %w", err)
	}

	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()

	post, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent"+Path, bytes.NewReader(body))
	if err != nil {
		return Response{}, fmt.Errorf("build CNI request: %w", err)
	}

	post.Header.Set("Content-Type", "application/json")

	answer, err := (&http.Client{Transport: transport}).Do(post)
	if err != nil {
		return Response{}, unreachable(req.Command, "call the node's agent on "+socket+": "+err.Error())
	}
	defer answer.Body.Close()

	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return Response{}, unreachable(req.Command, "read the agent's answer: "+err.Error())
	}

	var resp Response
	if err := json.Unmarshal(text, &resp); err != nil {
		return Response{}, types.NewError(types.ErrInternal,
			fmt.Sprintf("parse the agent's answer %q (%s): %v", text, answer.Status, err),
			"agent and plugin may be of different versions")
	}

	if resp.Error != nil {
		return resp, resp.Error
	}

	return resp, nil
}

// unreachable returns the error for an agent that does not answer. Runtimes retry after
// ErrTryAgainLater, but the specification has an error code of its own for STATUS.
func unreachable(command, message string) error {
	code := types.ErrTryAgainLater
	if command == "STATUS" {
		code = CodeNotAvailable
	}

	return types.NewError(code, message, "ovnkube's agent must run on this node; its log lists what is missing")
}

// Error codes in addition to those of containernetworking/cni/pkg/types. The specification defines
// the first two for STATUS (1.1.0); those from 100 on are specific to ovn-ebpf.
const (
	// CodeNotAvailable: pods cannot be added at the moment; existing pods work.
	CodeNotAvailable uint = 50
	// CodeLimited: pods cannot be added, and existing pods may have lost part of their connectivity.
	CodeLimited uint = 51

	// CodePodGone: the pod does not exist on this node, or was replaced by another one of its name. A
	// retry is of no use.
	CodePodGone uint = 100
	// CodeBadPod: an annotation of the pod is malformed.
	CodeBadPod uint = 101
	// CodeCheckFailed: the interface differs from the state after ADD.
	CodeCheckFailed uint = 102
	// CodeSuperseded: a later sandbox of the same pod has taken the port, or the runtime has requested
	// deletion of this one.
	CodeSuperseded uint = 103
)
