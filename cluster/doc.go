// Package cluster has ranges of ports, and the packages below it are what controller and agents
// share:
//
//   - annotation: the formats by which they exchange values: annotations, and ConfigMaps with pools
//   - apiserver: clients of the API server, and whether it answers
//   - controlplane: the addresses of the API server and of OVN's databases
//   - event: writes Events
//   - informer: copies of the API server's objects that know whether they are up to date
//   - masquerade: addresses that both use on every node
//
// Package service, at the top, interprets Services.
package cluster
