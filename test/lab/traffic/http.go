package traffic

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// httpCommand is the server in a pod of the lab. It answers every HTTP request and datagram with
// its name and the client's address. It prints "ready" when all sockets listen, and a line per
// request.
func httpCommand(ctx context.Context, args []string, stdout io.Writer) error {
	f := flag.NewFlagSet("traffic http", flag.ContinueOnError)
	tcp := f.String("tcp", "", "TCP `addresses` to listen on, like :80, separated by commas")
	udp := f.String("udp", "", "UDP `ports` to listen on, like :53, separated by commas")

	name := f.String("name", "server", "`name` to answer with")
	if err := f.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}

	group, ctx := errgroup.WithContext(ctx)
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, _, _ := net.SplitHostPort(r.RemoteAddr) // always valid from a server
		fmt.Fprintf(stdout, "%s %s from %s\n", r.Method, r.URL.Path, client)
		fmt.Fprintf(w, "%s answers %s\n", *name, client)
	})}

	context.AfterFunc(ctx, func() { server.Close() })

	for _, address := range list(*tcp) {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("serve: %w", err)
		}

		group.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve: %w", err)
			}

			return nil
		})
	}

	for _, address := range list(*udp) {
		if err := serveUDP(ctx, group, address, *name); err != nil {
			return fmt.Errorf("serve: %w", err)
		}
	}

	if _, err := fmt.Fprintln(stdout, strings.TrimSpace("ready "+*tcp+" "+*udp)); err != nil {
		return err
	}

	<-ctx.Done()

	return group.Wait()
}
