package annotation

// KeptPorts are the TCP ports on the address of a node's gateway that are never a
// Service's or a pod's, whatever an external IP or a host port says: ssh, kubelet, API
// server and etcd. Controller and agents must agree.
func KeptPorts() []uint16 { return []uint16{22, 10250, 6443, 2379, 2380} }
