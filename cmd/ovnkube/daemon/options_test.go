package daemon

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline"
)

// parse parses a command line as the program does.
func parse(f *flag.FlagSet, line []string) error {
	c := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, Run: func(*cobra.Command, []string) {}}
	c.Flags().AddGoFlagSet(f)

	return commandline.Run(context.Background(), c, line, io.Discard, io.Discard)
}

// Flags with optional values, and log levels per destination.
func TestOptions(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"", " false   <nil> <nil>"},
		{"--pidfile --detach --log-file", "/var/run/openvswitch/ovn-x.pid true /var/log/openvswitch/ovn-x.log  <nil> <nil>"},
		{"--pidfile=/a --log-file=/b", "/a false /b  <nil> <nil>"},
		{"-vfile:info -vconsole:emer", " false  file:info console:emer off INFO"},
		{"-v", " false  dbg DEBUG DEBUG"},
		{"-vany:file:warn", " false  any:file:warn <nil> WARN"},
		{"-vsyslog:off", " false  syslog:off <nil> <nil>"},
		{"-vwarn --verbose=console:err", " false  warn console:err ERROR WARN"},
		{"--pidfile=", "empty file name"},
		{"-vfile:loud", `"loud" is neither a level`},
		{"-vfile:info:info", `"info" is neither a level`},
	} {
		t.Run(tt.line, func(t *testing.T) {
			var o Options

			f := flag.NewFlagSet("x", flag.ContinueOnError)
			f.SetOutput(io.Discard)
			o.Declare(f, "ovn-x")
			o.DeclareLog(f)
			err := parse(f, strings.Fields(tt.line))

			got := fmt.Sprint(o.PIDFile, " ", o.Detach, " ", o.LogFile, " ", o.String(), " ", level(o.Console), " ", level(o.File))
			if err != nil {
				got = err.Error()
			}

			if err != nil && !strings.Contains(got, tt.want) || err == nil && got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func level(l *slog.Level) string {
	switch {
	case l == nil:
		return "<nil>"
	case *l == Off:
		return "off"
	}

	return l.String()
}
