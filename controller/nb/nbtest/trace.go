package nbtest

import "os/exec"

// Trace returns the output of ovn-trace for a packet that enters the datapath, a logical switch or
// router. It is the first packet of its connection in all of the at most three conntrack lookups.
func (o *OVN) Trace(datapath, packet string) string {
	o.t.Helper()

	out, err := exec.Command("ovn-trace", "--db="+o.southbound.Endpoint, "--no-leader-only",
		"--ct=new", "--ct=new", "--ct=new", datapath, packet).CombinedOutput()
	if err != nil {
		o.t.Fatalf("trace %s: %v: %s", packet, err, out)
	}

	return string(out)
}
