package endpoint

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/listener/listenertest"
)

func TestConnectionsAreBounded(t *testing.T) {
	t.Run("HTTP", func(t *testing.T) {
		l, err := Listen("127.0.0.1:0", TLS{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}

		ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
		go Serve(t.Context(), l, ok) //nolint:errcheck // it ends with the test

		listenertest.Flood(t, MaxConnections, func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) })
	})
	t.Run("HTTPS", func(t *testing.T) {
		address := strings.TrimPrefix(serve(t, newAuthority(t, "servers"), nil).url, "https://")
		listenertest.Flood(t, MaxConnections, func() (net.Conn, error) {
			c, err := net.Dial("tcp", address)
			if err != nil {
				return nil, err
			}

			return tls.Client(c, &tls.Config{InsecureSkipVerify: true}), nil //nolint:gosec // the test's own server
		})
	})
}
