package authority

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"
)

// world is what is stored, and a clock.
type world struct {
	t    *testing.T
	now  time.Time
	data Data
}

// renew stores what Renew returns, and returns the names.
func (w *world) renew() []string {
	w.t.Helper()

	want, err := Renew(w.now, Handover, w.data)
	if err != nil {
		w.t.Fatal(err)
	}

	maps.Copy(w.data, want)

	return slices.Sorted(maps.Keys(want))
}

// verifies returns nil if one holder's certificate is accepted now by another's bundle.
func (w *world) verifies(cert, bundle map[string][]byte, file string) error {
	block, _ := pem.Decode(cert["cert.pem"])

	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		w.t.Fatal(err)
	}

	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle[file]) {
		w.t.Fatal("no certificates in the bundle")
	}

	_, err = c.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: w.now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})

	return err
}

// node returns a node's certificate, signed by the authority of that time.
func (w *world) node(data Data) map[string][]byte {
	w.t.Helper()

	ca, err := parsePair(data[nodesSecret]["ca.crt"], data[nodesSecret]["ca.key"])
	if err != nil {
		w.t.Fatal(err)
	}

	own, err := issueMember("node1", ca, w.now)
	if err != nil {
		w.t.Fatal(err)
	}

	cert, err := issueNode(&x509.CertificateRequest{Subject: own.cert.Subject, PublicKey: own.key.Public()}, ca, w.now, memberLife)
	if err != nil {
		w.t.Fatal(err)
	}

	return map[string][]byte{"cert.pem": encodePEM("CERTIFICATE", cert.Raw)}
}

// TestRenewForYears: certificates are always valid, and a holder whose files are up to Handover old
// still knows every other one, through renewals and changes of the authority. No server of the
// databases accepts a node's certificate, except at the port for nodes.
func TestRenewForYears(t *testing.T) {
	w := &world{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), data: Data{}}
	if got := w.renew(); len(got) != len(secretNames()) {
		t.Fatalf("at first %v", got)
	}

	if got := w.renew(); len(got) != 0 {
		t.Fatalf("at once again %v", got)
	}

	const step = Handover * 9 / 10

	before := maps.Clone(w.data)
	changes, settled, authorities := 0, false, map[string]bool{}

	for end := w.now.AddDate(15, 0, 0); w.now.Before(end); w.now = w.now.Add(step) {
		changed := len(w.renew())
		if changed == 0 && settled {
			continue
		}

		changes, settled = changes+changed, changed == 0

		authorities[string(w.data[centralSecret]["ca.crt"])] = true
		for _, pair := range [][2]Data{{w.data, w.data}, {w.data, before}, {before, w.data}} {
			node, member := w.node(pair[0]), pair[1]["ovn-ebpf-central"]

			err := errors.Join(w.verifies(node, member, "node-cacert.pem"), w.verifies(pair[0]["ovn-ebpf-central"], member, "cacert.pem"))
			if err != nil {
				t.Fatalf("%s: %v", w.now, err)
			}

			if w.verifies(node, member, "cacert.pem") == nil || w.verifies(pair[0]["ovn-ebpf-central"], member, "node-cacert.pem") == nil {
				t.Fatalf("%s: one authority's certificate opens the other's port", w.now)
			}
		}

		before = maps.Clone(w.data)
	}
	// Two holders each 60 days, and both authorities twice each.
	if len(authorities) < 3 || changes < 2*15*365/61 || changes > 3*15*365/60 {
		t.Errorf("%d authorities, %d changes", len(authorities), changes)
	}
}

// TestRenewRepairs: what is missing or damaged is made again, but for the authority.
func TestRenewRepairs(t *testing.T) {
	w := &world{t: t, now: time.Now(), data: Data{}}
	w.renew()
	delete(w.data, "ovn-ebpf-central")

	if got := w.renew(); !slices.Equal(got, []string{"ovn-ebpf-central"}) {
		t.Errorf("after a Secret was deleted: %v", got)
	}

	databases := maps.Clone(w.data["ovn-ebpf-databases"])
	databases["ovnsb-cert.pem"] = []byte("x")

	w.data["ovn-ebpf-databases"] = databases
	if got := w.renew(); !slices.Equal(got, []string{"ovn-ebpf-databases"}) {
		t.Errorf("after a certificate was damaged: %v", got)
	}

	w.data["ovn-ebpf-central"] = map[string][]byte{"privkey.pem": w.data["ovn-ebpf-databases"]["ovnsb-privkey.pem"], "cert.pem": w.data["ovn-ebpf-central"]["cert.pem"]}
	if got := w.renew(); !slices.Equal(got, []string{"ovn-ebpf-central"}) {
		t.Errorf("with another's key: %v", got)
	}

	w.data[centralSecret] = map[string][]byte{"ca.crt": []byte("x")}
	if _, err := Renew(w.now, Handover, w.data); err == nil {
		t.Error("a damaged authority is replaced")
	}
}

// TestRotateOnRequest: an administrator's request makes the next authority, which all trust before
// it signs. Certificates of the former one stay valid.
func TestRotateOnRequest(t *testing.T) {
	w := &world{t: t, now: time.Now(), data: Data{}}
	w.renew()
	first, node := w.data[nodesSecret]["ca.crt"], w.node(w.data)
	w.data[nodesSecret] = maps.Clone(w.data[nodesSecret])

	w.data[nodesSecret]["rotate"] = []byte("now")
	if got := w.renew(); !slices.Equal(got, []string{"ovn-ebpf-central", nodesSecret}) {
		t.Fatalf("on request %v", got)
	}

	if len(w.data[nodesSecret]["next.crt"]) == 0 || !slices.Equal(w.data[nodesSecret]["ca.crt"], first) || len(w.data[nodesSecret]["rotate"]) > 0 {
		t.Errorf("keys %v", slices.Sorted(maps.Keys(w.data[nodesSecret])))
	}

	w.now = w.now.Add(Handover + time.Second)
	w.renew()

	if slices.Equal(w.data[nodesSecret]["ca.crt"], first) {
		t.Error("the former authority signs on")
	}

	for name, cert := range map[string]map[string][]byte{"former": node, "next": w.node(w.data)} {
		if err := w.verifies(cert, w.data["ovn-ebpf-central"], "node-cacert.pem"); err != nil {
			t.Errorf("a certificate of the %s authority: %v", name, err)
		}
	}
}
