package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
)

const chartSchema = "../../deploy/helm/ovn-ebpf/values.schema.json"

// values.schema.json is generated from the table of settings, so that Helm rejects the same values
// as the programs.
func TestChartSchema(t *testing.T) {
	var want bytes.Buffer

	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")

	if err := e.Encode(schemaOfChart(t)); err != nil {
		t.Fatal(err)
	}

	if *update {
		if err := os.WriteFile(chartSchema, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	have, err := os.ReadFile(chartSchema)
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(have, want.Bytes()) {
		t.Errorf("%s differs from the table of settings, update it: go test ./cmd/ovnkube -run TestChartSchema -update", chartSchema)
	}
}

type object = map[string]any

func schemaOfChart(t *testing.T) object {
	t.Helper()

	config := object{}
	for key, s := range configKeys(t) {
		config[key] = schemaOf(t, key, s)
	}

	config["KUBERNETES_SERVICE_HOST"] = object{"type": "string", "minLength": 1, "description": "an address of the API server that is reachable without Services"}
	config["KUBERNETES_SERVICE_PORT"] = object{"type": []string{"integer", "string"}, "minimum": 1, "maximum": 65535, "pattern": "^[1-9][0-9]{0,4}$", "description": "the API server's port at this address"}

	return object{
		"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
		"properties": object{
			"global":          object{"type": "object", "description": "values that a parent chart passes to all of its charts; not used"},
			"image":           object{"type": "string", "minLength": 1, "description": "the image of the controller, the agent and the CNI plugin"},
			"replicas":        object{"type": "integer", "minimum": 1, "description": "number of controllers; each one needs its own node"},
			"controllerUser":  object{"type": "integer", "minimum": 0, "description": "UID of the controller's process; 0 is root"},
			"databasesSecret": object{"type": "string", "minLength": 1, "description": "the Secret with the certificates and keys for ssl: databases"},
			"uninstall":       object{"type": "boolean", "description": "remove controller and agents, and clean up the nodes"},
			"config":          object{"type": "object", "additionalProperties": false, "properties": config},
			"ovn": object{"type": "object", "additionalProperties": false, "properties": object{
				"host":     object{"type": "boolean", "description": "OVN's databases and northd are not installed by the chart"},
				"image":    object{"type": "string", "minLength": 1, "description": "the image of OVN and Open vSwitch"},
				"replicas": object{"type": "integer", "enum": []int{1, 3}, "description": "number of members of OVN's databases; each one is a node of the control plane"},
				"backup": object{"type": "object", "additionalProperties": false, "properties": object{
					"schedule":  object{"type": "string", "description": "schedule of the backups, in the format of CronJobs; empty: no backups"},
					"directory": object{"type": "string", "pattern": "^/", "description": "directory of the backups on the node of the first member"},
					"keep":      object{"type": "integer", "minimum": 1, "description": "number of backups that are kept"},
				}},
				"volume": object{"type": "object", "additionalProperties": false, "properties": object{
					"size":         object{"type": "string", "pattern": "^([1-9][0-9]*(Mi|Gi|Ti|M|G|T))?$", "description": "size of a PersistentVolumeClaim for each member's databases; empty: a directory of the member's node"},
					"storageClass": object{"type": "string", "description": "storage class of these claims; empty: the cluster's default"},
				}},
				"members": object{
					"type": "object", "description": "the members' addresses by the names of their nodes; empty: Helm chooses nodes of the control plane",
					"additionalProperties": object{"type": "string", "pattern": "^[0-9a-fA-F.:]+$"},
				},
			}},
			"ovs": object{"type": "object", "additionalProperties": false, "properties": object{
				"host":     object{"type": "boolean", "description": "Open vSwitch of the nodes is not installed by the chart"},
				"image":    object{"type": "string", "description": "the image of Open vSwitch and ovn-controller; empty: ovn.image"},
				"datapath": object{"enum": []string{"system", "netdev"}, "description": "datapath of Open vSwitch: the kernel's (system), or its own (netdev)"},
			}},
		},
	}
}

// configKeyRef matches a variable in the chart's templates, and the key of the ConfigMap that
// gives its value.
var configKeyRef = regexp.MustCompile(`\{name: (OVNKUBE_\w+), valueFrom: \{configMapKeyRef: \{name: ovn-ebpf, key: (\w+), optional: true\}`)

// configKeys returns the setting of each key of the ConfigMap, according to the chart's templates.
func configKeys(t *testing.T) map[string]*setting.Setting {
	t.Helper()

	variables, keys := map[string]*setting.Setting{}, map[string]*setting.Setting{}
	for _, s := range newSettings("").Settings {
		variables[s.Variable()] = s
	}

	for _, name := range []string{"controller", "node"} {
		text, err := os.ReadFile("../../deploy/helm/ovn-ebpf/templates/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}

		for _, match := range configKeyRef.FindAllStringSubmatch(string(text), -1) {
			if s := variables[match[1]]; s != nil {
				keys[match[2]] = s
			}
		}
	}

	if len(keys) < 14 {
		t.Fatalf("keys %v", keys)
	}

	return keys
}

// schemaOf returns the schema of a value; an empty value is unset.
func schemaOf(t *testing.T, key string, s *setting.Setting) object {
	t.Helper()

	out := object{"description": strings.NewReplacer("`", "", "\n", " ").Replace(s.Usage)}
	switch v := s.Value.(type) {
	case interface{ Words() []string }:
		out["enum"] = append(v.Words(), "")
	case interface{ IsBoolFlag() bool }:
		out["type"], out["pattern"] = []string{"boolean", "string"}, "^(true|false)?$"
	case interface{ Range() (least, most int) }:
		least, most := v.Range()

		if s.Flag == "mtu" { // 0 has a meaning of its own: see annotation.CheckPodMTU
			out["anyOf"] = []object{{"enum": []any{0, ""}}, {"type": "integer", "minimum": 576}}
		}

		out["type"], out["minimum"], out["maximum"], out["pattern"] = []string{"integer", "string"}, least, most, "^$"
	default:
		f, known := forms[s.Flag]
		if !known {
			t.Fatalf("%s: no schema for %s, add a form", key, s.Flag)
		}

		out["type"], out["pattern"] = "string", "^("+f.pattern+")?$"
	}

	return out
}

const (
	cidr4     = `[0-9.]+/[0-9]+`
	cidr6     = `[0-9a-fA-F:.]*:[0-9a-fA-F:.]*/[0-9]+`
	cidr      = `[0-9a-fA-F:.]+/[0-9]+`
	ports     = `[1-9][0-9]{0,4}-[1-9][0-9]{0,4}` // in this order: see deploy/helm/ovn-ebpf/templates/config.yaml
	database1 = `(unix:/[^,]+|(tcp|ssl):[^,]+:[0-9]+)`
)

// forms describe the syntax of text settings: a pattern, and examples that pattern and setting
// accept or reject.
var forms = map[string]struct {
	pattern       string
	right, refuse []string
}{
	"cluster-subnets":         {cidr + `(/[0-9]+)?(, *` + cidr + `(/[0-9]+)?)*`, []string{"10.1.0.0/16", "10.1.0.0/16/24,fd00:10::/48/64"}, []string{"10.1.0.0", "none"}},
	"k8s-service-cidrs":       {cidr + `(, *` + cidr + `)*`, []string{"10.96.0.0/16", "10.96.0.0/16,fd00:10:96::/112"}, []string{"10.96.0.0", "10.96.0.0/16;"}},
	"allow-external-ips":      {cidr + `(, *` + cidr + `)*`, []string{"192.0.2.0/24"}, []string{"192.0.2.1", "any"}},
	"allow-pod-tunnels":       {cidr + `(, *` + cidr + `)*`, []string{"192.0.2.0/24", "192.0.2.0/24,2001:db8::/64"}, []string{"192.0.2.1", "any"}},
	"host-networks":           {cidr + `(, *` + cidr + `)*`, []string{"192.0.2.0/24", "192.0.2.0/24,2001:db8::/64"}, []string{"192.0.2.1", "any"}},
	"snat-port-range":         {ports, []string{"50000-60000"}, []string{"50000", "50000:60000", "0-9", "500000-600000"}},
	"service-node-port-range": {ports, []string{"50000-60000"}, []string{"50000", "50000:60000", "0-9", "500000-600000"}},
	"gateway-v4-join-subnet":  {cidr4, []string{"100.64.0.0/16"}, []string{"fd98::/64", "100.64.0.0"}},
	"gateway-v6-join-subnet":  {cidr6, []string{"fd98::/64"}, []string{"100.64.0.0/16", "fd98::"}},
	"nb-address":              {database1 + `(,` + database1 + `)*`, []string{"unix:/run/ovn/ovnnb_db.sock", "ssl:192.0.2.1:6641,ssl:192.0.2.2:6641"}, []string{"192.0.2.1:6641", "http://192.0.2.1"}},
	"sb-address":              {database1 + `(,` + database1 + `)*`, []string{"tcp:192.0.2.1:6642", "ssl:[2001:db8::1]:6642"}, []string{"192.0.2.1", "unix"}},
	"metrics-bind-address":    {`[^ ]*:[0-9]+`, []string{"0.0.0.0:9410", "[::]:9410"}, []string{"0.0.0.0", "9410"}},
	"gateway-interface":       {`[^ /]{1,15}`, []string{"eth0", "bond0.100"}, nil}, // the setting accepts any text as a name
}

// A pattern accepts and rejects the same values as the setting.
func TestPatternsMatchSettings(t *testing.T) {
	values := map[string]flag.Value{}
	for _, s := range newSettings("").Settings {
		values[s.Flag] = s.Value
	}

	for name, f := range forms {
		pattern := regexp.MustCompile("^(" + f.pattern + ")$")
		for _, text := range f.right {
			if err := values[name].Set(text); err != nil || !pattern.MatchString(text) {
				t.Errorf("%s: %q: the setting says %v, the pattern matches: %t", name, text, err, pattern.MatchString(text))
			}
		}

		for _, text := range f.refuse {
			if err := values[name].Set(text); err == nil || pattern.MatchString(text) {
				t.Errorf("%s: %q is refused by the setting: %t, by the pattern: %t", name, text, err != nil, !pattern.MatchString(text))
			}
		}
	}
}
