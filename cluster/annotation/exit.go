package annotation

// Drained reports whether an operator has drained the node's gateway. Pods of nodes without a
// gateway leave by other nodes, and health checks send load balancers to other nodes.
func Drained(annotations map[string]string) bool { return annotations[DrainGateway] == "true" }

// FormatLeavesBy is the value of LeavesBy: nodes' names.
func FormatLeavesBy(names []string) string {
	if names == nil {
		names = []string{}
	}
	return encode(names)
}

// ParseLeavesBy returns the nodes by whose gateways the node's pods leave.
func ParseLeavesBy(annotations map[string]string) ([]string, error) {
	var names []string
	err := get(annotations, LeavesBy, &names)
	return names, err
}
