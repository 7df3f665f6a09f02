// Command build builds kube-apiserver, and the lab's programs for running pods, into the cache.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
)

func main() {
	cache := flag.String("cache", kube.CacheDir(), "`directory` for what is built once")
	check := flag.Bool("check", false, "build nothing; the exit status is 1 if something is missing")

	flag.Parse()

	if *check {
		if !kube.BuiltForPods(*cache) {
			os.Exit(1)
		}

		return
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	path, err := kube.BuildForPods(ctx, *cache, os.Stderr)

	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	fmt.Println(path)
}
