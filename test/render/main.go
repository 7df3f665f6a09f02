// Command render prints the objects that Helm makes of a chart, by Helm's own library, as `helm
// template` does. Tests of deploy and `make release` run it. It is a module of its own, so that no
// other go.mod has Helm and its dependencies.
//
//	render [-namespace NAME] [-api-versions LIST] [-show-only TEMPLATE] [-set KEY=VALUE]... CHART
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
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

// run renders a release by the name ovn-ebpf. If the chart's schema refuses a value, run returns an
// error.
func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("render", flag.ContinueOnError)
	namespace := flags.String("namespace", "ovn-ebpf", "the release's `namespace`")
	server := flags.String("kube-version", "v1.35.4", "the server's `version`")
	versions := flags.String("api-versions", "", "a `list` of API versions that the server has beside the usual ones, by commas")
	only := flags.String("show-only", "", "print this `template` of the chart alone, as in templates/uninstall.yaml")
	values := map[string]any{}
	flags.Func("set", "a `value`, as helm --set has it", func(s string) error { return strvals.ParseInto(s, values) })
	flags.Func("set-string", "a `value`, as helm --set-string has it", func(s string) error { return strvals.ParseIntoString(s, values) })
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("usage: render [FLAGS] CHART")
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
		if *only != "" && name != path.Join(c.Name(), *only) {
			continue
		}
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
