// Package monitoring has the Grafana dashboards and the Prometheus alerts of this directory as files.
package monitoring

import "embed"

// RulesFile is the name of the file of alerts.
const RulesFile = "rules.yaml"

// Files are RulesFile, and the dashboards in the directory dashboards.
//
//go:embed rules.yaml dashboards/*.json
var Files embed.FS
