package cloud

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// The users' passwords. Nothing but the loopback address reaches the cloud.
const password = "secret"

func (c *Cloud) startKeystone(ctx context.Context) error {
	err := c.write("keystone.conf", `[DEFAULT]
transport_url = fake:///
[database]
connection = `+c.database("keystone")+`
[token]
provider = fernet
[fernet_tokens]
key_repository = `+c.path("fernet")+`
[credential]
key_repository = `+c.path("credential")+`
[cache]
enabled = false
`)
	if err != nil {
		return err
	}
	if err := c.directories("fernet", "credential"); err != nil {
		return err
	}
	manage := []string{"keystone-manage", "--config-file", c.path("keystone.conf")}
	for _, step := range [][]string{
		{"db_sync"},
		{"fernet_setup", "--keystone-user", "root", "--keystone-group", "root"},
		{"credential_setup", "--keystone-user", "root", "--keystone-group", "root"},
		{"bootstrap", "--bootstrap-password", password, "--bootstrap-public-url", c.keystone + "/v3/", "--bootstrap-region-id", "RegionOne"},
	} {
		if err := c.run(ctx, append(manage, step...)...); err != nil {
			return err
		}
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(c.keystone, "http://"), ":")
	_, err = c.start(ctx, responds(c.keystone+"/v3", http.StatusOK),
		"env", "OS_KEYSTONE_CONFIG_FILES="+c.path("keystone.conf"), "keystone-wsgi-public", "--host", host, "--port", port)
	return err
}

func responds(url string, status int) func() error {
	return func() error {
		r, err := http.Get(url)
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
	admin := &API{base: c.keystone + "/v3"}
	if err := admin.login(ctx, c.keystone, "admin", "admin"); err != nil {
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
	b := &batch{api: admin}
	service := b.create(ctx, "/projects", "project", Object{"name": "service", "domain_id": "default"})
	neutron := b.create(ctx, "/users", "user", Object{"name": "neutron", "domain_id": "default", "password": password})
	b.put(ctx, "/projects/"+service+"/users/"+neutron+"/roles/"+roles["admin"])
	c.Project = b.create(ctx, "/projects", "project", Object{"name": "k8s", "domain_id": "default"})
	user := b.create(ctx, "/users", "user", Object{"name": "k8s", "domain_id": "default", "password": password})
	b.put(ctx, "/projects/"+c.Project+"/users/"+user+"/roles/"+roles["member"])
	network := b.create(ctx, "/services", "service", Object{"type": "network", "name": "neutron"})
	b.create(ctx, "/endpoints", "endpoint", Object{
		"interface": "public", "service_id": network, "region_id": "RegionOne", "url": c.neutron,
	})
	if b.err != nil {
		return b.err
	}
	c.Admin, c.Tenant = &API{base: c.neutron, token: admin.token}, &API{base: c.neutron}
	if err := c.Tenant.login(ctx, c.keystone, "k8s", "k8s"); err != nil {
		return err
	}
	return c.applicationCredential(ctx, user)
}

func (c *Cloud) applicationCredential(ctx context.Context, user string) error {
	var rules []Object
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		rules = append(rules, Object{"service": "network", "method": method, "path": "/v2.0/**"})
	}
	tenant := &API{base: c.keystone + "/v3", token: c.Tenant.token}
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
      auth_url: %s/v3
      application_credential_id: %s
      application_credential_secret: %s
    region_name: RegionOne
`, c.keystone, credential["id"], credential["secret"]))
}

// batch stops at its first error.
type batch struct {
	api *API
	err error
}

func (b *batch) create(ctx context.Context, path, kind string, o Object) string {
	if b.err != nil {
		return ""
	}
	made, err := b.api.Do(ctx, "POST", path, Object{kind: o})
	if err != nil {
		b.err = err
		return ""
	}
	return made[kind].(Object)["id"].(string)
}

func (b *batch) put(ctx context.Context, path string) {
	if b.err == nil {
		_, b.err = b.api.Do(ctx, "PUT", path, nil)
	}
}
