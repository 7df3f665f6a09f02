// Command ovn-k8s-cni-overlay is the CNI plugin. It forwards the runtime's request to the node's
// agent and returns the agent's response.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ovn-ebpf/ovn-ebpf/cni"
)

// callTimeout is longer than the agent's own time limit, so that the plugin can return the agent's
// error.
const callTimeout = 130 * time.Second

func main() {
	if len(os.Args) > 1 {
		os.Exit(installerStatus(os.Args[1:]))
	}

	skel.PluginMainFuncs(skel.CNIFuncs{
		Add:    func(args *skel.CmdArgs) error { return call("ADD", args) },
		Del:    func(args *skel.CmdArgs) error { return call("DEL", args) },
		Check:  func(args *skel.CmdArgs) error { return call("CHECK", args) },
		GC:     func(args *skel.CmdArgs) error { return call("GC", args) },
		Status: func(args *skel.CmdArgs) error { return call("STATUS", args) },
	}, version.All, "CNI plugin "+pluginName)
}

// call sends a command to the agent, and prints the result of an ADD for the runtime.
func call(command string, args *skel.CmdArgs) error {
	conf, err := cni.ParseNetConf(args.StdinData)
	if err != nil {
		return err
	}

	// A runtime that gives up kills the plugin, and the agent sees the connection close. On SIGTERM
	// the plugin still reports the error.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	ctx, cancel := context.WithTimeout(ctx, callTimeout)
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
