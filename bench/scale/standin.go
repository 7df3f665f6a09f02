package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// The other nodes are stand-ins: they have no ovn-controller, so the bench writes its rows of the
// Southbound database, the chassis and the bindings of ports. Without them, the real node would
// have neither tunnels to other nodes nor flows for their pods.

// standinChassis writes the chassis of all nodes but the real one, which is the first.
func (o *ovn) standinChassis(ctx context.Context, c *cluster) error {
	argv := []string{"ovn-sbctl", "--db=" + o.southbound()}
	for i, n := range c.nodes[1:] {
		argv = append(argv, "--", "chassis-add", n.name, "geneve", nodeAddress(i+1).String())
	}

	if len(c.nodes) == 1 {
		return nil
	}

	_, err := tool(ctx, nil, argv...)

	return err
}

// standinBindings binds all ports of stand-ins to their chassis.
func (o *ovn) standinBindings(ctx context.Context) error {
	text, err := tool(ctx, nil, "ovn-sbctl", "--db="+o.southbound(), "--bare", "--columns=_uuid,name", "list", "Chassis")
	if err != nil {
		return err
	}

	lines := strings.Fields(text)
	request := []any{"OVN_Southbound"}

	for i := 0; i+1 < len(lines); i += 2 {
		uuid, name := []string{"uuid", lines[i]}, lines[i+1]
		if name == nodeName(0) {
			continue
		}

		bound := map[string]any{"chassis": uuid, "up": true}
		gateway := []any{"map", [][]string{{"l3gateway-chassis", name}}}

		port := []any{"map", [][]string{{"distributed-port", "rtos-" + name}}}
		for _, where := range [][]any{
			{[]any{"requested_chassis", "==", uuid}},                                     // pods
			{[]any{"type", "==", "l3gateway"}, []any{"options", "includes", gateway}},    // gateway router
			{[]any{"type", "==", "chassisredirect"}, []any{"options", "includes", port}}, // cluster router
		} {
			request = append(request, map[string]any{"op": "update", "table": "Port_Binding", "where": where, "row": bound})
		}
	}

	argument, err := json.Marshal(request)
	if err != nil {
		return err
	}

	text, err = tool(ctx, nil, "ovsdb-client", "transact", o.southbound(), string(argument))
	if err == nil && strings.Contains(text, `"error"`) {
		err = fmt.Errorf("bind ports of stand-ins: %s", text)
	}

	return err
}

// hasChassis returns an error while the database lacks the chassis.
func (o *ovn) hasChassis(ctx context.Context, name string) error {
	text, err := tool(ctx, nil, "ovn-sbctl", "--db="+o.southbound(), "--bare", "--columns=name", "find", "Chassis_Private", "name="+name)
	if err == nil && text != name {
		err = fmt.Errorf("no chassis %s yet", name)
	}

	return err
}
