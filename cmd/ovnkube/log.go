package main

import (
	"cmp"
	"io"
	"log/slog"

	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/klog/v2"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/daemon"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
)

// logFlags configure the level, the destination and the rotation of the log.
type logFlags struct {
	level                        int
	verbosity                    daemon.Verbosity // from OVS's flags; takes precedence over level
	file                         string
	megabytes, backups, daysKept int
}

func (l *logFlags) settings() []*setting.Setting {
	return []*setting.Setting{
		{
			Flag:    "loglevel",
			Section: "logging",
			Key:     "loglevel",
			Value:   setting.Number(&l.level, 0, 10),
			Usage: "`level` of the log: errors (0 or 1), also warnings (2 or 3), also information (4), " +
				"or everything (5 to 10)",
		},
		{
			Flag:    "logfile",
			Section: "logging",
			Key:     "logfile",
			Value:   setting.Text(&l.file),
			Usage:   "`file` to which the log is appended; default: none, the log goes to standard error",
		},
		{
			Flag:    "logfile-maxsize",
			Section: "logging",
			Key:     "logfile-maxsize",
			Value:   setting.Number(&l.megabytes, 1, 1<<20),
			Usage:   "size of the log file in `MB` at which it is rotated",
		},
		{
			Flag:    "logfile-maxbackups",
			Section: "logging",
			Key:     "logfile-maxbackups",
			Value:   setting.Number(&l.backups, 0, 1<<20),
			Usage:   "maximum `number` of rotated log files (0: no limit)",
		},
		{
			Flag:    "logfile-maxage",
			Section: "logging",
			Key:     "logfile-maxage",
			Value:   setting.Number(&l.daysKept, 0, 1<<20),
			Usage:   "maximum age of rotated log files in `days` (0: no limit)",
		},
	}
}

// open opens the log, and redirects the logs of Kubernetes' client library to it. The log is
// written to the file if one is configured, and otherwise to stderr. With a verbosity for the
// console, it is also written to stderr.
func (l *logFlags) open(stderr io.Writer) *slog.Logger {
	level := slog.LevelInfo // of --loglevel 4
	switch {
	case l.level <= 1:
		level = slog.LevelError
	case l.level <= 3:
		level = slog.LevelWarn
	case l.level >= 5:
		level = slog.LevelDebug
	}

	newHandler := func(w io.Writer, verbosity *slog.Level) slog.Handler {
		return slog.NewTextHandler(w, &slog.HandlerOptions{Level: *cmp.Or(verbosity, &level)})
	}

	var handlers []slog.Handler
	if l.file == "" || l.verbosity.Console != nil {
		handlers = append(handlers, newHandler(stderr, l.verbosity.Console))
	}

	if l.file != "" {
		file := &lumberjack.Logger{
			Filename:   l.file,
			MaxSize:    l.megabytes,
			MaxBackups: l.backups,
			MaxAge:     l.daysKept,
		}
		handlers = append(handlers, newHandler(file, l.verbosity.File))
	}

	log := slog.New(slog.NewMultiHandler(handlers...))
	klog.SetSlogLogger(log.With("component", "client-go"))

	return log
}
