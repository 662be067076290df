package rig

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// Kill ends the gateway with SIGKILL, and serves its files again.
func (h *Tenants) Kill(t *testing.T) {
	t.Helper()
	if err := h.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.Cmd.Wait() // it was killed
	h.Gateway = Serve(t, h.Dir)
}

// Tenants is a switchboard that serves several tenants over HTTP. Each tenant has a key, and the task "all".
type Tenants struct {
	*Gateway
	Keys map[string]string // by tenant
}

// A TenantConfig has the other settings of a tenant.
type TenantConfig struct {
	Policy string // the value of policy:, one line of YAML
	Rego   string // its layer, without the package
	Key    string // what its key has besides, such as "tier: pro"
	More   string // more lines of tenant.yaml
}

// AllowAll is a rule of a tenant's layer that allows every candidate.
const AllowAll = "allowed_tools contains c.id if some c in input.candidate_tools\n"

// RequireAll is the body of a task that requires all tools of all servers by name.
const RequireAll = "required_capabilities:\n  - {tools: [\"*/*\"]}\n"

// ServeTenants serves an archive with these tenants. The line TENANTS in the archive stands for their rows; bound is added to each row.
func ServeTenants(t *testing.T, archive, bound string, tenants map[string]TenantConfig) *Tenants {
	t.Helper()
	h := &Tenants{Keys: map[string]string{}}
	var rows, files strings.Builder
	for _, id := range slices.Sorted(maps.Keys(tenants)) {
		r := tenants[id]
		fmt.Fprintf(&rows, "  %s: {servers: [\"*\"], allow: [by_name]%s}\n", id, bound)
		key, hash := identity.Mint(identity.AgentPrefix)
		h.Keys[id] = key
		fmt.Fprintf(&files, "-- tenants/%s/tenant.yaml --\ntenant: %s\ndefault_task: all\n%s", id, id, r.More)
		if r.Policy != "" {
			fmt.Fprintf(&files, "policy: %s\n", r.Policy)
		}
		fmt.Fprintf(&files, "keys:\n  - {id: someone, hash: %q", hash)
		if r.Key != "" {
			fmt.Fprintf(&files, ", %s", r.Key)
		}
		files.WriteString("}\n")
		if !strings.Contains(archive, "-- tenants/"+id+"/tasks/all.yaml --") {
			fmt.Fprintf(&files, "-- tenants/%s/tasks/all.yaml --\ntask_id: all\n%s", id, RequireAll)
		}
		if r.Rego != "" {
			files.WriteString(LayerFile(id) + r.Rego)
		}
	}
	h.Gateway = Serve(t, LayOut(t, strings.Replace(archive, "TENANTS\n", "tenants:\n"+rows.String(), 1)+files.String()))
	return h
}

// LayerFile returns the head of a tenant's policy file in an archive, with its package.
func LayerFile(tenant string) string {
	return "-- tenants/" + tenant + "/policies/own.rego --\npackage switchboard.tenant\n"
}

// OpenAs opens a client of a tenant.
func (h *Tenants) OpenAs(tenant string, modern bool) *HTTPSession {
	h.T.Helper()
	return h.Open(h.T, "/mcp", modern, "Authorization", "Bearer "+h.Keys[tenant])
}

// Clients opens a client of the tenant for each era and transport.
func (h *Tenants) Clients(t *testing.T, tenant string) map[string]Session {
	t.Helper()
	legacy := Stdio(t, h.Dir, false, "--tenant", tenant)
	modern := *legacy // the same process
	modern.Modern, modern.Next = true, 1000
	return map[string]Session{
		"http/legacy": h.OpenAs(tenant, false), "http/modern": h.OpenAs(tenant, true),
		"stdio/legacy": legacy, "stdio/modern": &modern,
	}
}

// Get requests the path with the tenant's key, and returns the body.
func (h *Tenants) Get(t *testing.T, tenant, path string) string {
	t.Helper()
	_, body := h.GetStatus(t, tenant, path)
	return body
}

// GetStatus is Get with the HTTP status. If tenant is "", the request has no key.
func (h *Tenants) GetStatus(t *testing.T, tenant, path string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if tenant != "" {
		req.Header.Set("Authorization", "Bearer "+h.Keys[tenant])
	}
	resp, err := http.DefaultClient.Do(req)
	wait.Read(t, path, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	wait.Read(t, path, err)
	return resp.StatusCode, string(text)
}

// Begin sends the head of a tenant's modern request, and waits until Switchboard has authenticated it and asks for the body. end sends the body.
func (h *Tenants) Begin(t *testing.T, tenant, method, name, params string) (end func() Message) {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: Patience}).DialContext(t.Context(), "tcp", strings.TrimPrefix(h.URL, "http://"))
	wait.Read(t, "a connection", err)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(Patience))
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, WithMeta(params))
	in := bufio.NewReader(conn)
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nMcp-Protocol-Version: 2026-07-28\r\nMcp-Method: %s\r\nMcp-Name: %s\r\nExpect: 100-continue\r\n\r\n", h.Keys[tenant], len(body), method, name)
	resp, err := http.ReadResponse(in, nil) //nolint:bodyclose // it has none
	wait.Read(t, "the answer to the head", err)
	if resp.StatusCode != http.StatusContinue {
		t.Fatal(resp.Status)
	}
	return func() Message {
		t.Helper()
		var text []byte
		_, err := io.WriteString(conn, body)
		if err == nil {
			resp, err = http.ReadResponse(in, nil)
		}
		if err == nil {
			defer func() { _ = resp.Body.Close() }()
			text, err = io.ReadAll(resp.Body)
		}
		wait.Read(t, "the answer to the body", err)
		return ParseMessage(text)
	}
}
