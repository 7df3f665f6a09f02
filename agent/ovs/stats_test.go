package ovs

import "testing"

func TestParseDatapathStats(t *testing.T) {
	const show = `system@ovs-system:
  lookups: hit:100 missed:20 lost:3
  flows: 7
  masks: hit:150 total:2 hit/pkt:1.25
  port 0: ovs-system (internal)
netdev@ovs-netdev:
  lookups: hit:1 missed:2 lost:0
  flows: 5
`

	got, err := parseDatapathStats(show)
	if want := (DatapathStats{Hit: 101, Missed: 22, Lost: 3, Flows: 12}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}

	if _, err := parseDatapathStats("system@ovs-system:\n"); err == nil {
		t.Error("no error for a reply without lookups")
	}
}
