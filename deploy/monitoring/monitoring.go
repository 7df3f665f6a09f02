// Package monitoring has the dashboards and alerts beside it.
package monitoring

import "embed"

// RulesFile is the name of the file of alerts.
const RulesFile = "rules.yaml"

// Files are RulesFile, and the dashboards in the directory dashboards.
//
//go:embed rules.yaml dashboards/*.json
var Files embed.FS
