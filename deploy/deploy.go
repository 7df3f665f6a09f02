// Package deploy tests the manifests beside it: kustomize base, uninstallation
// and Helm chart.
package deploy
