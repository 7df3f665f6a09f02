package authority

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/informer"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// SignerName is the signer of nodes' certificates in the CSR API.
const SignerName = "ovn-ebpf.io/node"

// NodeAccount is the ServiceAccount whose requests are granted.
const NodeAccount = "ovn-ebpf-ovn-controller"

// nodeNameKey is the extra field of a requester whose token is bound to a pod: the pod's node. API
// servers of Kubernetes 1.30 or newer set it.
const nodeNameKey = "authentication.kubernetes.io/node-name"

// watchRetryMax is the longest pause after requests to the API server that failed.
const watchRetryMax = 5 * time.Second

// answerRequests answers the requests to SignerName until the context ends.
func (a *Authority) answerRequests(ctx context.Context) error {
	requests := informer.New(a.Client.CertificatesV1().CertificateSigningRequests(), informer.Options{
		Name:     "certificate requests",
		Example:  &certificatesv1.CertificateSigningRequest{},
		RetryMax: watchRetryMax,
		Log:      a.Log,
		Select: func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.signerName", SignerName).String()
		},
	})
	wake := loop.NewSignal()

	_, err := requests.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { wake.Trigger() },
		UpdateFunc: func(any, any) { wake.Trigger() },
	})
	if err != nil {
		return fmt.Errorf("watch certificate requests: %w", err)
	}

	var running sync.WaitGroup

	running.Go(func() { requests.RunWithContext(ctx) })
	defer running.Wait()

	return loop.Run(ctx, loop.Options{
		Name:  "certificate requests",
		Wake:  wake,
		Log:   a.Log,
		Apply: func(ctx context.Context) error { return a.answerAll(ctx, requests.GetStore().List()) },
	})
}

func (a *Authority) answerAll(ctx context.Context, requests []any) error {
	var errs []error

	for _, o := range requests {
		r := o.(*certificatesv1.CertificateSigningRequest)
		if err := a.answer(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("answer certificate request %s: %w", r.Name, err))
		}
	}

	return errors.Join(errs...)
}

// answer approves and signs a request, or denies it. It ignores a request that has been answered.
func (a *Authority) answer(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error {
	if len(r.Status.Certificate) > 0 ||
		hasCondition(r, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed) {
		return nil
	}

	r = r.DeepCopy() // the informer owns the original

	request, errRefused := a.check(r)
	if errRefused != nil {
		return ignoreChanged(a.refuse(ctx, r, errRefused))
	}

	client := a.Client.CertificatesV1().CertificateSigningRequests()

	var err error

	if !hasCondition(r, certificatesv1.CertificateApproved) {
		r.Status.Conditions = append(r.Status.Conditions, condition(certificatesv1.CertificateApproved,
			"the requester runs on the node that the certificate names"))

		if r, err = client.UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{}); err != nil {
			return ignoreChanged(err)
		}
	}

	if r.Status.Certificate, err = a.sign(ctx, request, r.Spec.ExpirationSeconds); err != nil {
		return err
	}

	if _, err := client.UpdateStatus(ctx, r, metav1.UpdateOptions{}); err != nil {
		return ignoreChanged(err)
	}

	a.Log.Info("certificate issued", "request", r.Name, "node", request.Subject.CommonName)

	return nil
}

// refuse denies a request. A request that an administrator has approved cannot be denied any more,
// and fails instead.
func (a *Authority) refuse(ctx context.Context, r *certificatesv1.CertificateSigningRequest, reason error) error {
	client := a.Client.CertificatesV1().CertificateSigningRequests()

	var err error

	if hasCondition(r, certificatesv1.CertificateApproved) {
		r.Status.Conditions = append(r.Status.Conditions,
			condition(certificatesv1.CertificateFailed, reason.Error()))
		_, err = client.UpdateStatus(ctx, r, metav1.UpdateOptions{})
	} else {
		r.Status.Conditions = append(r.Status.Conditions,
			condition(certificatesv1.CertificateDenied, reason.Error()))
		_, err = client.UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{})
	}

	if err == nil {
		a.Log.Warn("certificate refused", "request", r.Name, "user", r.Spec.Username, "reason", reason)
	}

	return err
}

// ignoreChanged returns nil for the error that an object has changed or is deleted. The watch then
// calls answer again.
func ignoreChanged(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}

	return err
}

// hasCondition reports whether the request has a condition of one of the types.
func hasCondition(
	r *certificatesv1.CertificateSigningRequest,
	types ...certificatesv1.RequestConditionType,
) bool {
	for _, c := range r.Status.Conditions {
		if slices.Contains(types, c.Type) {
			return true
		}
	}

	return false
}

func condition(
	conditionType certificatesv1.RequestConditionType,
	message string,
) certificatesv1.CertificateSigningRequestCondition {
	return certificatesv1.CertificateSigningRequestCondition{
		Type:    conditionType,
		Status:  corev1.ConditionTrue,
		Reason:  "NodeName",
		Message: message,
	}
}

// check returns the parsed request, or an error with the reason to refuse it. Only pods with
// NodeAccount get certificates: a client certificate with the name of the pod's node, and no other
// names.
func (a *Authority) check(r *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	if want := "system:serviceaccount:" + a.Namespace + ":" + NodeAccount; r.Spec.Username != want {
		return nil, fmt.Errorf("the requester is %q, want %q", r.Spec.Username, want)
	}

	nodeNames := r.Spec.Extra[nodeNameKey]
	if len(nodeNames) != 1 {
		return nil, fmt.Errorf("the requester's token names %d nodes, want one (%s): API servers of Kubernetes 1.30 or newer write it into the tokens of pods",
			len(nodeNames), nodeNameKey)
	}

	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return nil, errors.New("the request is not PEM")
	}

	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse request: %w", err)
	}

	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("check request: %w", err)
	}

	if request.Subject.CommonName != nodeNames[0] {
		return nil, fmt.Errorf("the requester runs on node %q, and asks for the name %q",
			nodeNames[0], request.Subject.CommonName)
	}

	for _, u := range r.Spec.Usages {
		if u != certificatesv1.UsageDigitalSignature && u != certificatesv1.UsageKeyEncipherment &&
			u != certificatesv1.UsageClientAuth {
			return nil, fmt.Errorf("the usage %q is not a client's", u)
		}
	}

	if len(request.DNSNames)+len(request.IPAddresses)+len(request.EmailAddresses)+len(request.URIs) > 0 {
		return nil, errors.New("the request has other names than the common name")
	}

	return request, nil
}

// sign returns a certificate in PEM that the authority of nodes has signed. seconds is the
// requested life; nil: a.NodeLife.
func (a *Authority) sign(
	ctx context.Context,
	request *x509.CertificateRequest,
	seconds *int32,
) ([]byte, error) {
	s, err := a.Client.CoreV1().Secrets(a.Namespace).Get(ctx, nodesSecret, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", nodesSecret, err)
	}

	ca, err := parsePair(s.Data["ca.crt"], s.Data["ca.key"])
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", nodesSecret, err)
	}

	life := a.NodeLife
	if seconds != nil {
		life = min(life, time.Duration(*seconds)*time.Second)
	}

	cert, err := issueNode(request, ca, time.Now(), life)
	if err != nil {
		return nil, err
	}

	return encodePEM("CERTIFICATE", cert.Raw), nil
}
