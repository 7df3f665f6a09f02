package source

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// setters are the functions that change the process's logger, by import path.
var setters = map[string][]string{
	"k8s.io/klog/v2": {
		"SetLogger", "SetSlogLogger", "SetLoggerWithOptions", "ClearLogger", "EnableContextualLogging", "InitFlags",
		"SetOutput", "SetOutputBySeverity", "LogToStderr", "CopyStandardLogTo", "SetLogFilter",
	},
	"log/slog":                           {"SetDefault", "SetLogLoggerLevel"},
	"log":                                {"SetOutput", "SetFlags", "SetPrefix"},
	"sigs.k8s.io/controller-runtime":     {"SetLogger"},
	"sigs.k8s.io/controller-runtime/log": {"SetLogger"},
}

// Only package main sets a logger of the process. Libraries read it in goroutines that may already
// run when another function is called.
func TestLoggers_areSetByMain(t *testing.T) {
	uses := 0

	for importPath, names := range setters {
		for _, use := range Uses(t, top, importPath, names...) {
			uses++
			file, _, _ := strings.Cut(use, ":")

			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(top, file), nil, parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}

			if f.Name.Name != "main" {
				t.Errorf("%s, in package %s", use, f.Name.Name)
			}
		}
	}

	if uses == 0 {
		t.Error("no program sets a logger: the test looks for the wrong functions")
	}
}
