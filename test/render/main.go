// Command render prints the objects that kustomize or Helm make of a directory, by their own
// libraries: what `kubectl kustomize` and `helm template` print. Tests of deploy run it. It is a
// module of its own, so that these libraries and what they need are in no other go.mod.
//
//	render kustomize DIRECTORY
//	render chart [-namespace NAME] [-api-versions LIST] [-set KEY=VALUE]... DIRECTORY
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "kustomize":
		return kustomize(args[1], out)
	case len(args) > 1 && args[0] == "chart":
		return chart(args[1:], out)
	}
	return errors.New("usage: render kustomize DIRECTORY, or render chart [FLAGS] DIRECTORY")
}

// kustomize builds with kubectl's options: no file outside of a kustomization's root.
func kustomize(dir string, out io.Writer) error {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return err
	}
	text, err := objects.AsYaml()
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// chart renders a release by the name ovn-ebpf. Values that the chart's schema refuses are an
// error.
func chart(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("chart", flag.ContinueOnError)
	namespace := flags.String("namespace", "ovn-ebpf", "the release's `namespace`")
	server := flags.String("kube-version", "v1.35.4", "the server's `version`")
	versions := flags.String("api-versions", "", "a `list` of API versions that the server has beside the usual ones, by commas")
	values := map[string]any{}
	flags.Func("set", "a `value`, as helm --set has it", func(s string) error { return strvals.ParseInto(s, values) })
	flags.Func("set-string", "a `value`, as helm --set-string has it", func(s string) error { return strvals.ParseIntoString(s, values) })
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := loader.Load(flags.Arg(0))
	if err != nil {
		return err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	if capabilities.KubeVersion, err = version(*server); err != nil {
		return err
	}
	if *versions != "" {
		capabilities.APIVersions = append(capabilities.APIVersions, strings.Split(*versions, ",")...)
	}
	release := chartutil.ReleaseOptions{Name: "ovn-ebpf", Namespace: *namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, release, capabilities)
	if err != nil {
		return err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".yaml" && strings.TrimSpace(files[name]) != "" {
			if _, err := fmt.Fprintf(out, "---\n%s\n", strings.TrimSpace(files[name])); err != nil {
				return err
			}
		}
	}
	return nil
}

func version(text string) (chartutil.KubeVersion, error) {
	v, err := chartutil.ParseKubeVersion(text)
	if err != nil {
		return chartutil.KubeVersion{}, err
	}
	return *v, nil
}
