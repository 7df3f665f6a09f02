// Command pause holds a pod's namespaces: it waits for a signal to end, and reaps orphaned
// processes.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM)

	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}

		for pid := 1; pid > 0; {
			pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil) // -1: no children
		}
	}
}
