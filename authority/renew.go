package authority

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	// life of a certificate, which is renewed when a third of it is left.
	life = 90 * 24 * time.Hour
	// Handover is the time between a new authority's publication and its first signature, in which
	// every node's kubelet brings the new bundle.
	Handover = 24 * time.Hour
	// skew is by how much clocks may differ.
	skew = time.Hour
)

// Secrets of the two authorities. A node's certificate opens the Southbound database's port for
// nodes only, whose server trusts no other.
const (
	central = "ovn-ebpf-ca"      // of the databases' members, northd and the controller
	nodes   = "ovn-ebpf-node-ca" // of nodes
)

// rotate is a key of an authority's Secret, with any value, by which an administrator asks for the
// next authority.
const rotate = "rotate"

var authorityNames = []string{central, nodes}

// holder is a Secret with a certificate, under the file names that its readers expect.
type holder struct {
	secret, commonName string
	files              []files
}

// files are the keys of a Secret. ca has the certificates of the authority that the reader trusts.
type files struct{ key, cert, ca, trusts string }

// holders returns the Secrets with a certificate of the authority of the databases. Their servers
// verify that it is the authority's, and look at no name.
func holders() []holder {
	return []holder{
		{"ovn-ebpf-central", "ovn-central", []files{
			{"privkey.pem", "cert.pem", "cacert.pem", central},
			{"privkey.pem", "cert.pem", "node-cacert.pem", nodes},
		}},
		{"ovn-ebpf-databases", "ovn-ebpf-controller", []files{
			{"ovnnb-privkey.pem", "ovnnb-cert.pem", "ovnnb-ca.cert", central},
			{"ovnsb-privkey.pem", "ovnsb-cert.pem", "ovnsb-ca.cert", central},
		}},
	}
}

// secrets returns the names of all Secrets, the authorities' first.
func secrets() []string {
	out := slices.Clone(authorityNames)
	for _, h := range holders() {
		out = append(out, h.secret)
	}

	return out
}

// Data are the contents of Secrets, by name and key.
type Data map[string]map[string][]byte

// signer is an authority now, and the certificates by which it is trusted.
type signer struct {
	*pair
	trusted []byte
}

// Renew returns the Secrets that must be written, given those that exist. It makes unreadable ones
// again, but not an authority: its loss would disconnect all clients with its certificates.
func Renew(now time.Time, handover time.Duration, have Data) (Data, error) {
	want, signers := Data{}, map[string]signer{}
	for _, name := range authorityNames {
		ca, trusted, err := authority(now, handover, name, have, want)
		if err != nil {
			return nil, err
		}

		signers[name] = signer{ca, trusted}
	}

	for _, h := range holders() {
		data, err := h.renew(now, have[h.secret], signers)
		if err != nil {
			return nil, err
		}

		if data != nil {
			want[h.secret] = data
		}
	}

	return want, nil
}

// authority returns the authority that signs and the certificates to trust. It adds its
// Secret to want if that changes. An authority is followed by the next one in two steps: first all
// trust it, then it signs.
func authority(now time.Time, handover time.Duration, name string, have, want Data) (*pair, []byte, error) {
	data := have[name]
	if len(data) == 0 {
		ca, err := issue("ovn-ebpf authority", nil, now, authorityLife)
		if err != nil {
			return nil, nil, err
		}

		want[name], err = authorityData(ca, nil, nil)

		return ca, ca.certPEM(), err
	}

	ca, err := parse(data["ca.crt"], data["ca.key"])
	if err != nil {
		return nil, nil, fmt.Errorf("read Secret %s: %w (delete it, and every member and node gets new certificates)",
			name, err)
	}

	var next *pair
	if len(data["next.crt"]) > 0 {
		if next, err = parse(data["next.crt"], data["next.key"]); err != nil {
			return nil, nil, fmt.Errorf("read Secret %s: %w", name, err)
		}
	}

	old := data["old.crt"]
	switch {
	case next == nil && (ca.cert.NotAfter.Sub(now) < authorityLife/3 || len(data[rotate]) > 0):
		if next, err = issue("ovn-ebpf authority", nil, now, authorityLife); err != nil {
			return nil, nil, err
		}
	case next != nil && now.Sub(next.cert.NotBefore.Add(skew)) >= handover:
		ca, next, old = next, nil, ca.certPEM()
	default:
		return ca, trust(ca, next, old), nil
	}

	want[name], err = authorityData(ca, next, old)

	return ca, trust(ca, next, old), err
}

func trust(ca, next *pair, old []byte) []byte {
	out := ca.certPEM()
	if next != nil {
		out = append(out, next.certPEM()...)
	}

	return append(out, old...)
}

func authorityData(ca, next *pair, old []byte) (map[string][]byte, error) {
	key, err := ca.keyPEM()
	if err != nil {
		return nil, err
	}

	out := map[string][]byte{"ca.crt": ca.certPEM(), "ca.key": key}
	if next != nil {
		if out["next.key"], err = next.keyPEM(); err != nil {
			return nil, err
		}

		out["next.crt"] = next.certPEM()
	}

	if len(old) > 0 {
		out["old.crt"] = old
	}

	return out, nil
}

// renew returns the holder's new data, or nil if the present ones stay.
func (h holder) renew(
	now time.Time,
	have map[string][]byte,
	signers map[string]signer,
) (map[string][]byte, error) {
	first, ca := h.files[0], signers[central]
	p, err := parse(have[first.cert], have[first.key])

	valid := err == nil && signed(p.cert, ca.cert) &&
		p.cert.NotAfter.Sub(now) >= life/3 && !now.Before(p.cert.NotBefore)
	if !valid {
		if p, err = issue(h.commonName, ca.pair, now, life); err != nil {
			return nil, err
		}
	}

	key, err := p.keyPEM()
	if err != nil {
		return nil, err
	}

	want := map[string][]byte{}
	for _, f := range h.files {
		want[f.key], want[f.cert], want[f.ca] = key, p.certPEM(), signers[f.trusts].trusted
	}

	if maps.EqualFunc(have, want, bytes.Equal) {
		return nil, nil
	}

	return want, nil
}

func signed(cert, by *x509.Certificate) bool { return cert.CheckSignatureFrom(by) == nil }
