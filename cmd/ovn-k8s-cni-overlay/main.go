// Command ovn-k8s-cni-overlay is the CNI plugin: it carries the runtime's
// request to the node's agent and the agent's answer back.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ovn-ebpf/ovn-ebpf/cni"
)

// callTimeout is a little more than the agent's own deadline, so that its
// explanation arrives.
const callTimeout = 130 * time.Second

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add:   func(args *skel.CmdArgs) error { return call("ADD", args) },
		Del:   func(args *skel.CmdArgs) error { return call("DEL", args) },
		Check: func(args *skel.CmdArgs) error { return call("CHECK", args) },
	}, version.All, "CNI plugin ovn-k8s-cni-overlay")
}

func call(command string, args *skel.CmdArgs) error {
	conf, err := cni.ParseNetConf(args.StdinData)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	resp, err := cni.Call(ctx, conf.ServerSocket, cni.Request{
		Command: command, ContainerID: args.ContainerID, Netns: args.Netns,
		Interface: args.IfName, Args: args.Args, Config: args.StdinData,
	})
	if err != nil || command != "ADD" {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, string(resp.Result))
	return err
}
