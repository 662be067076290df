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

// Kill ends g as nothing can see coming, and serves its files anew.
func (h *House) Kill(t *testing.T) {
	t.Helper()
	if err := h.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.Cmd.Wait() // it was killed
	h.Gateway = Serve(t, h.Dir)
}

// A house is a configuration of several tenants, each with a key of its own and
// the task all, and a switchboard that serves them over HTTP.
type House struct {
	*Gateway
	Keys map[string]string // by tenant
}

// A Resident is what one tenant of a house has besides.
type Resident struct {
	Policy string // its policy:, in YAML of one line
	Rego   string // its layer, without the package
	Key    string // what its key has besides, such as "tier: pro"
	More   string // what its tenant.yaml has besides
}

const AllowAll = "allowed_tools contains c.id if some c in input.candidate_tools\n"

const RequireAll = "required_capabilities:\n  - {tools: [\"*/*\"]}\n"

// Inhabit lays out and serves a house. archive has its files but for those of
// tenants; bound is what the operator gives each tenant besides all servers.
func Inhabit(t *testing.T, archive, bound string, tenants map[string]Resident) *House {
	t.Helper()
	h := &House{Keys: map[string]string{}}
	rows := ""
	for _, id := range slices.Sorted(maps.Keys(tenants)) {
		r := tenants[id]
		rows += fmt.Sprintf("  %s: {servers: [\"*\"], allow: [by_name]%s}\n", id, bound)
		key, hash := identity.Mint()
		h.Keys[id] = key
		text := "tenant: " + id + "\ndefault_task: all\n" + r.More
		if r.Policy != "" {
			text += "policy: " + r.Policy + "\n"
		}
		text += fmt.Sprintf("keys:\n  - {id: someone, hash: %q", hash)
		if r.Key != "" {
			text += ", " + r.Key
		}
		archive += "-- tenants/" + id + "/tenant.yaml --\n" + text + "}\n"
		if !strings.Contains(archive, "-- tenants/"+id+"/tasks/all.yaml --") {
			archive += "-- tenants/" + id + "/tasks/all.yaml --\ntask_id: all\n" + RequireAll
		}
		if r.Rego != "" {
			archive += LayerFile(id) + r.Rego
		}
	}
	h.Gateway = Serve(t, LayOut(t, strings.Replace(archive, "TENANTS\n", "tenants:\n"+rows, 1)))
	return h
}

func LayerFile(tenant string) string {
	return "-- tenants/" + tenant + "/policies/own.rego --\npackage switchboard.tenant\n"
}

// OpenAs opens a client of a tenant.
func (h *House) OpenAs(tenant string, modern bool) *HTTPSession {
	h.T.Helper()
	return h.Open(h.T, "/mcp", modern, "Authorization", "Bearer "+h.Keys[tenant])
}

// Clients are the tenant's, one of each era on each transport.
func (h *House) Clients(t *testing.T, tenant string) map[string]Session {
	t.Helper()
	legacy := Stdio(t, h.Dir, false, "--tenant", tenant)
	modern := *legacy // the same process
	modern.Modern, modern.Next = true, 1000
	return map[string]Session{
		"http/legacy": h.OpenAs(tenant, false), "http/modern": h.OpenAs(tenant, true),
		"stdio/legacy": legacy, "stdio/modern": &modern,
	}
}

// Get asks for what people look at from the side.
func (h *House) Get(t *testing.T, tenant, path string) string {
	t.Helper()
	_, body := h.GetStatus(t, tenant, path)
	return body
}

// GetStatus is get with its status; "" is nobody.
func (h *House) GetStatus(t *testing.T, tenant, path string) (status int, body string) {
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

// Begin sends the head of a modern request of a tenant, waits until its sender
// is known and its body is asked for, and returns what sends that.
func (h *House) Begin(t *testing.T, tenant, method, name, params string) (end func() Message) {
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
