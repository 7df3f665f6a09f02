package plan

// PortGroup is a row of Port_Group: a set of pods' ports. Its members are set by the ports
// (LogicalSwitchPort.Groups). northd derives the address sets <name>_ip4 and <name>_ip6 from it.
type PortGroup struct {
	Name        string            `ovsdb:"name"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// ACL is a row of ACL. It applies to a switch or to a port group; the other field is "". Rule
// distinguishes it from the other ACLs of its owner in the same place and direction.
type ACL struct {
	Switch    string            `parent:"Logical_Switch.acls"`
	Group     string            `parent:"Port_Group.acls"`
	Rule      string            // part of the ID, not a column
	Label     string            `ovsdb:"name"` // in the log; at most 63 bytes
	Direction string            `ovsdb:"direction"`
	Priority  int               `ovsdb:"priority"`
	Match     string            `ovsdb:"match"`
	Action    string            `ovsdb:"action"`
	Options   map[string]string `ovsdb:"options"`
	Log       bool              `ovsdb:"log"`
	Severity  string            `ovsdb:"severity"`
	Meter     string            `ovsdb:"meter"`
}

// Meter is a row of Meter.
type Meter struct {
	Name  string   `ovsdb:"name"`
	Unit  string   `ovsdb:"unit"`
	Fair  bool     `ovsdb:"fair"`                   // each user of the meter has the whole rate
	Bands []string `ovsdb:"bands" ref:"Meter_Band"` // IDs of bands of the same owner
}

// MeterBand is a row of Meter_Band.
type MeterBand struct {
	Meter  string
	Action string `ovsdb:"action"`
	Rate   int    `ovsdb:"rate"`
}

// Table returns the row's table, as in the schema.
func (PortGroup) Table() string { return "Port_Group" }

// Table returns the row's table, as in the schema.
func (ACL) Table() string { return "ACL" }

// Table returns the row's table, as in the schema.
func (Meter) Table() string { return "Meter" }

// Table returns the row's table, as in the schema.
func (MeterBand) Table() string { return "Meter_Band" }

// ID returns the name.
func (r PortGroup) ID() string { return r.Name }

// ID names switch or group, direction and rule.
func (r ACL) ID() string { return r.Switch + r.Group + " " + r.Direction + " " + r.Rule }

// ID returns the name.
func (r Meter) ID() string { return r.Name }

// ID names the meter.
func (r MeterBand) ID() string { return r.Meter + " band" }
