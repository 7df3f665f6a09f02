package monitoring_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/deploy/monitoring"
)

// databases has three servers of a cluster: the first leads until it ends, and nobody after it;
// the second is behind, the third is cut off.
const databases = `
rule_files: [RULES]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {series: 'ovn_db_up{db_name="nb",endpoint="one",instance="a"}', values: '1x10 0x20'}
  - {series: 'ovn_db_up{db_name="nb",endpoint="one",instance="b"}', values: '1x10 0x20'}
  - {series: 'ovn_db_up{db_name="nb",endpoint="two",instance="a"}', values: '0x30'}
  - {series: 'ovn_db_up{db_name="nb",endpoint="two",instance="b"}', values: '1x30'}
  - {series: 'ovn_db_cluster_server_role{db_name="nb",endpoint="one",server_role="leader"}', values: '1x10 stale'}
  - {series: 'ovn_db_cluster_server_role{db_name="nb",endpoint="two",server_role="follower"}', values: '1x30'}
  - {series: 'ovn_db_cluster_server_id{db_name="nb",endpoint="two",cluster_id="c",server_id="2"}', values: '1x30'}
  - {series: 'ovn_db_cluster_server_connected{db_name="nb",endpoint="two"}', values: '1x30'}
  - {series: 'ovn_db_cluster_server_connected{db_name="nb",endpoint="three"}', values: '0x30'}
  - {series: 'ovn_db_cluster_log_entry_index{db_name="nb",endpoint="two"}', values: '10+0x30'}
  - {series: 'ovn_db_cluster_log_entry_index{db_name="nb",endpoint="three"}', values: '10+100x30'}
  alert_rule_test:
  - {eval_time: 9m, alertname: OVNEBPFDatabaseServerDown, exp_alerts: []}
  - {eval_time: 9m, alertname: OVNEBPFDatabaseNoLeader, exp_alerts: []}
  - eval_time: 14m
    alertname: OVNEBPFDatabaseNoLeader
    exp_alerts: [{exp_labels: {severity: critical, db_name: nb}, exp_annotations: {summary: "No server of nb leads: nothing is written.", runbook_url: URLovnebpfdatabasenoleader}}]
  - eval_time: 20m
    alertname: OVNEBPFDatabaseServerDown
    exp_alerts: [{exp_labels: {severity: warning, db_name: nb, endpoint: one}, exp_annotations: {summary: "The server one of nb does not answer.", runbook_url: URLovnebpfdatabaseserverdown}}]
  - eval_time: 9m
    alertname: OVNEBPFDatabaseServerBehind
    exp_alerts: [{exp_labels: {severity: warning, db_name: nb, endpoint: three}, exp_annotations: {summary: "The server three of nb does not follow the others.", runbook_url: URLovnebpfdatabaseserverbehind}}]
  - eval_time: 20m
    alertname: OVNEBPFDatabaseServerBehind
    exp_alerts:
    - {exp_labels: {severity: warning, db_name: nb, endpoint: three}, exp_annotations: {summary: "The server three of nb does not follow the others.", runbook_url: URLovnebpfdatabaseserverbehind}}
    - {exp_labels: {severity: warning, db_name: nb, endpoint: two}, exp_annotations: {summary: "The server two of nb does not follow the others.", runbook_url: URLovnebpfdatabaseserverbehind}}
`

// What the alerts about databases say when servers go, as promtool computes it.
func TestDatabaseAlerts(t *testing.T) {
	rules, err := filepath.Abs(monitoring.RulesFile)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("RULES", rules, "URL", "https://github.com/ovn-ebpf/ovn-ebpf/blob/main/docs/runbook.md#").Replace(databases)
	file := filepath.Join(t.TempDir(), "databases.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("promtool", "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}
