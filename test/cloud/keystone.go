package cloud

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
)

// The users' passwords; the script root has that of the operator. Only this machine reaches the
// cloud.
const password = "secret"

func (c *Cloud) startKeystone(ctx context.Context) error {
	err := c.write("keystone.conf", `[DEFAULT]
transport_url = fake:///
[database]
connection = `+database("keystone")+`
[token]
provider = fernet
[fernet_tokens]
key_repository = `+inside+`/fernet
[credential]
key_repository = `+inside+`/credential
[cache]
enabled = false
`)
	if err != nil {
		return err
	}

	_, err = c.start(ctx, "keystone", c.responds(c.keystone()+"/v3", http.StatusOK), c.o.Inside("env",
		"OS_KEYSTONE_CONFIG_FILES="+inside+"/keystone.conf", "keystone-wsgi-public",
		"--host", c.o.Keystone.Addr().String(), "--port", strconv.Itoa(int(c.o.Keystone.Port())))...)

	return err
}

// keystone and neutron return the URLs of the APIs.
func (c *Cloud) keystone() string { return "http://" + c.o.Keystone.String() }
func (c *Cloud) neutron() string  { return "http://" + c.o.Neutron.String() }

func (c *Cloud) responds(url string, status int) func() error {
	client := c.client()

	return func() error {
		r, err := client.Get(url)
		if err != nil {
			return err
		}

		r.Body.Close()

		if r.StatusCode != status {
			return fmt.Errorf("status %d of %s, want %d", r.StatusCode, url, status)
		}

		return nil
	}
}

// identities makes projects, users and Neutron's place in the catalog, and an application
// credential whose access rules allow requests to Neutron alone.
func (c *Cloud) identities(ctx context.Context) error {
	admin := &API{client: c.client(), base: c.keystone() + "/v3"}
	if err := admin.login(ctx, c.keystone(), "admin", "admin"); err != nil {
		return err
	}

	roles := map[string]string{}

	list, err := admin.Do(ctx, "GET", "/roles", nil)
	if err != nil {
		return err
	}

	for _, r := range list["roles"].([]any) {
		roles[r.(Object)["name"].(string)] = r.(Object)["id"].(string)
	}

	b := &Batch{API: admin}
	if err := c.moveKeystone(ctx, b); err != nil {
		return err
	}

	service := b.post(ctx, "/projects", "project", Object{"name": "service", "domain_id": "default"})
	neutron := b.post(ctx, "/users", "user", Object{"name": "neutron", "domain_id": "default", "password": password})
	b.Put(ctx, "/projects/"+service+"/users/"+neutron+"/roles/"+roles["admin"], nil)
	c.Project = b.post(ctx, "/projects", "project", Object{"name": "k8s", "domain_id": "default"})
	user := b.post(ctx, "/users", "user", Object{"name": "k8s", "domain_id": "default", "password": password})
	b.Put(ctx, "/projects/"+c.Project+"/users/"+user+"/roles/"+roles["member"], nil)
	network := b.post(ctx, "/services", "service", Object{"type": "network", "name": "neutron"})
	b.post(ctx, "/endpoints", "endpoint", Object{
		"interface": "public", "service_id": network, "region_id": "RegionOne", "url": c.neutron(),
	})

	if c.Proxy != nil {
		b.post(ctx, "/regions", "region", Object{"id": proxyRegion})
		b.post(ctx, "/endpoints", "endpoint", Object{
			"interface": "public", "service_id": network, "region_id": proxyRegion, "url": c.Proxy.url(),
		})
	}

	if b.Err != nil {
		return b.Err
	}

	c.Admin, c.Tenant = &API{client: c.client(), base: c.neutron(), token: admin.token}, &API{client: c.client(), base: c.neutron()}
	if err := c.Tenant.login(ctx, c.keystone(), "k8s", "k8s"); err != nil {
		return err
	}

	return c.applicationCredential(ctx, user)
}

// moveKeystone writes Keystone's address into the catalog, which has a placeholder.
func (c *Cloud) moveKeystone(ctx context.Context, b *Batch) error {
	list, err := b.API.Do(ctx, "GET", "/endpoints", nil)
	if err != nil {
		return err
	}

	for _, e := range list["endpoints"].([]any) {
		id := e.(Object)["id"].(string)

		_, err := b.API.Do(ctx, "PATCH", "/endpoints/"+id, Object{"endpoint": Object{"url": c.keystone() + "/v3/"}})
		if err != nil {
			return err
		}
	}

	return nil
}

func (c *Cloud) applicationCredential(ctx context.Context, user string) error {
	var rules []Object
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		rules = append(rules, Object{"service": "network", "method": method, "path": "/v2.0/**"})
	}

	tenant := &API{client: c.client(), base: c.keystone() + "/v3", token: c.Tenant.token}

	made, err := tenant.Do(ctx, "POST", "/users/"+user+"/application_credentials",
		Object{"application_credential": Object{"name": "ovn-ebpf", "access_rules": rules}})
	if err != nil {
		return err
	}

	credential := made["application_credential"].(Object)
	c.CloudsFile = c.path("clouds.yaml")

	return c.write("clouds.yaml", fmt.Sprintf(`clouds:
  k8s:
    auth_type: v3applicationcredential
    auth:
      auth_url: %[1]s/v3
      application_credential_id: %[2]s
      application_credential_secret: %[3]s
    region_name: RegionOne
  %[5]s:
    auth_type: v3applicationcredential
    auth:
      auth_url: %[1]s/v3
      application_credential_id: %[2]s
      application_credential_secret: %[3]s
    region_name: %[6]s
  admin:
    auth:
      auth_url: %[1]s/v3
      username: admin
      password: %[4]s
      project_name: admin
      user_domain_id: default
      project_domain_id: default
    region_name: RegionOne
`, c.keystone(), credential["id"], credential["secret"], password, ProxyCloud, proxyRegion))
}
