package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/test/document"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// reader runs the commands of documents in a lab.
type reader struct {
	*operatorShell
	test    *testing.T // the whole test
	dir     string     // working directory, with deploy/ and the file
	replace []string
}

// newReader replaces the example addresses and names of the documents.
func newReader(t *testing.T, l *lab.Lab, ovnkube string) *reader {
	t.Helper()
	r := &reader{operatorShell: newOperatorShell(t, l, ovnkube), test: t, dir: t.TempDir()}

	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}

	programs, err := kube.BuildForPods(t.Context(), kube.CacheDir(), os.Stdout)
	if err != nil {
		t.Fatal(err)
	}

	if err := os.Symlink(filepath.Join(programs, "kubectl"), filepath.Join(r.bin, "kubectl")); err != nil {
		t.Fatal(err)
	}

	if err := os.Symlink(filepath.Join(filepath.Dir(ovnkube), "ovnbench"), filepath.Join(r.bin, "ovnbench")); err != nil {
		t.Fatal(err)
	}

	config, err := l.RestConfig()
	if err != nil {
		t.Fatal(err)
	}

	etc := filepath.Join(r.dir, "etc")
	if err := errors.Join(os.Symlink(filepath.Join(root, "deploy"), filepath.Join(r.dir, "deploy")), os.Mkdir(etc, 0o755),
		os.WriteFile(filepath.Join(etc, "k8s-ca.crt"), config.CAData, 0o644), os.WriteFile(filepath.Join(etc, "k8s-token"), []byte("token"), 0o600)); err != nil {
		t.Fatal(err)
	}

	r.replace = []string{
		"/etc/kubernetes/admin.conf", l.Kubeconfig(), "/etc/openvswitch/", etc + "/", "/etc/systemd/system/", etc, "/etc/default/", etc + "/",
		"192.0.2.12", l.Node(2).IP4.String(), "192.0.2.11", l.Node(1).IP4.String(), "192.0.2.10", l.Node(1).IP4.String(),
		"192.0.2.1", lab.CentralIP4,
	}

	ping, err := l.Command(t.Context(), "ext", "ping", "-n", "-q", "-i", "0.2", l.Node(1).IP4.String())
	if err != nil {
		t.Fatal(err)
	}

	r.begin(t, ping) // traffic for a monitor

	return r
}

// populate creates the objects that the documents refer to: pods and a policy of networkpolicy.md,
// and a NodePort of explain.md.
func (r *reader) populate(t *testing.T) {
	t.Helper()

	pods := map[string]*lab.Pod{}

	for _, name := range []string{"web-0", "db-0"} {
		app, _, _ := strings.Cut(name, "-")

		pod, err := r.AddPod(t.Context(), lab.PodSpec{Namespace: "prod", Name: name, Node: "node1", Labels: map[string]string{"app": app}})
		if err != nil {
			t.Fatal(err)
		}

		pods[name] = pod
	}

	r.addPolicy(t)

	r.addNodePort(t, pods["web-0"])

	web, db := pods["web-0"].IP4().As4(), pods["db-0"].IP4()
	mac := func(a [4]byte) string { return fmt.Sprintf("0a:58:%02x:%02x:%02x:%02x", a[0], a[1], a[2], a[3]) }
	router := web
	router[3] = 1
	r.replace = append(r.replace, "0a:58:0a:f4:01:05", mac(web), "0a:58:0a:f4:01:01", mac(router), "10.244.1.5", pods["web-0"].IP4().String(), "10.244.1.6", db.String())
}

// addNodePort creates the Service prod/web with a server in the pod, and waits until its NodePort
// accepts connections.
func (r *reader) addNodePort(t *testing.T, web *lab.Pod) {
	t.Helper()

	const port, nodePort = 8080, 30080

	_, err := r.AddService(t.Context(), lab.ServiceSpec{
		Namespace: web.Namespace, Name: "web", Type: corev1.ServiceTypeNodePort, Pods: []*lab.Pod{web},
		Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(port), NodePort: nodePort}},
	})
	if err != nil {
		t.Fatal(err)
	}

	_, err = r.Serve(t.Context(), "pod:"+web.Namespace+"/"+web.Name, "documents-web", "-name", web.Name, "-tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		t.Fatal(err)
	}

	within(t, "connect to the NodePort", func() error {
		connect := fmt.Sprintf("exec 3<>/dev/tcp/%s/%d", r.Node(1).IP4, nodePort)
		_, err := r.Exec(t.Context(), "ext", "timeout", "2", "bash", "-c", connect)

		return err
	})
}

// begin starts a command and returns the path of its output file.
func (r *reader) begin(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()

	out, err := os.CreateTemp(r.dir, "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()

	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	r.test.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
		_ = cmd.Wait()                          // ended by the signal
	})

	return out.Name()
}

// write writes the lines to ovn_k8s.conf.
func (r *reader) write(t *testing.T, lines []string) {
	t.Helper()

	text := strings.NewReplacer(r.replace...).Replace(strings.Join(lines, "\n") + "\n")
	if err := os.WriteFile(filepath.Join(r.dir, "ovn_k8s.conf"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// command runs a command of a document. If the document shows the output, it is compared.
func (r *reader) command(t *testing.T, c document.Command) {
	t.Helper()

	if strings.Contains(c.Line, "…") {
		t.Errorf("%q cannot be typed: it contains an elision", c.Line)
		return
	}

	for _, e := range endless {
		if strings.HasPrefix(c.Line, e.begins) && !strings.Contains(c.Line, " -count ") {
			r.goesOn(t, c.Line, e.says, e.ready)
			return
		}
	}

	out := r.types(t, 1, "cd %s; %s", r.dir, r.here(c.Line))
	if c.Shown {
		if err := document.Compare(c.Output, out); err != nil {
			t.Errorf("%s: %v in\n%s", c.Line, err, out)
		}
	}
}

// here adapts a line to this lab: its addresses, options for its userspace datapath, and --yes for
// commands that ask for confirmation.
func (r *reader) here(line string) string {
	line = strings.NewReplacer(r.replace...).Replace(line)
	if strings.HasPrefix(line, "ovnbench run ") {
		line = strings.Replace(line, "bench run ", "bench run --seconds 1 --yes ", 1)
	}

	return line
}

// goesOn runs a command that does not end: an agent on each node, the controller and observers on
// node1, and the server of a measurement on node2. It ends observers.
func (r *reader) goesOn(t *testing.T, line, says, ready string) {
	t.Helper()

	nodes := []int{1}

	switch {
	case strings.HasPrefix(line, "ovnkube agent"):
		nodes = []int{1, 2, 3}
	case strings.HasPrefix(line, "ovnbench serve"):
		nodes = []int{2}
	}

	for _, i := range nodes {
		n := r.Node(i)

		own := r.here(strings.ReplaceAll(line, "node1", n.Name))
		if strings.HasPrefix(line, "ovnkube agent") {
			own += " --gateway-interface " + lab.UplinkPlain + " --cni-socket " + n.CNISocket
			if n.Encap.IsValid() {
				own += " --encap-ip " + n.Encap.String()
			}
		}

		cmd, err := r.shell(r.test.Context(), i, "cd "+r.dir+"; exec "+own)
		if err != nil {
			t.Fatal(err)
		}

		out := r.begin(t, cmd)
		within(t, n.Name+"# "+own, func() error {
			said := readFile(t, out)
			if ready == "" && strings.Contains(said, says) {
				return nil
			}

			if ready != "" && r.answers(n.Name, ready) == nil {
				return nil
			}

			return fmt.Errorf("it says %q", said)
		})

		if strings.HasPrefix(line, "ovnkube gateway monitor") {
			_ = cmd.Process.Signal(syscall.SIGINT) // fails if it has ended
		}
	}
}

// answers requests a page that exists when all is ready.
func (r *reader) answers(on, url string) error {
	client, err := r.Client(on)
	if err != nil {
		return err
	}

	res, err := client.Get(url)
	if err != nil {
		return err
	}
	defer res.Body.Close()

	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}

	return nil
}

// addPolicy creates the policy prod/db: db accepts connections from web at 5432.
func (r *reader) addPolicy(t *testing.T) {
	t.Helper()

	client, err := r.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	app := func(name string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	web, at := app("web"), intstr.FromInt32(5432)

	_, err = client.NetworkingV1().NetworkPolicies("prod").Create(t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: networkingv1.NetworkPolicySpec{PodSelector: app("db"), Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From: []networkingv1.NetworkPolicyPeer{{PodSelector: &web}}, Ports: []networkingv1.NetworkPolicyPort{{Port: &at}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
