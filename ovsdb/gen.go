package ovsdb

//go:generate go tool modelgen -extended -p nb -o nb schema/ovn-nb.ovsschema
//go:generate go tool modelgen -p sb -o sb schema/ovn-sb.ovsschema
//go:generate go tool modelgen -p vswitch -o vswitch schema/vswitch.ovsschema
