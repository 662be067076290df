package rig

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/serving"
	"github.com/summit-switchboard/switchboard/test/officer"
	"github.com/summit-switchboard/switchboard/test/openapi"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// An Answer is an answer of the admin API.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Row returns the row of g in its data folder.
func (g *Gateway) Row() (serving.Neighbor, error) {
	return officer.Row(g.URL, filepath.Join(g.Dir, ".switchboard"), filepath.Join(os.Getenv("SWITCHBOARD_HOME"), ".switchboard"))
}

// AdminURL returns the admin address of g, without a path.
func (g *Gateway) AdminURL() string {
	g.T.Helper()
	r, err := g.Row()
	wait.Read(g.T, "the row", err)
	return r.Admin
}

// AskAdmin sends a request to the admin API. Without a key it is that of this machine's operator, over the connection that commands use. The test
// fails if the answer does not fit the OpenAPI document. header has names and values in turn.
func (g *Gateway) AskAdmin(t *testing.T, key, method, path, body string, header ...string) Answer {
	t.Helper()
	row, err := g.Row()
	wait.Read(t, "the row", err)
	client, base := http.DefaultClient, row.Admin
	if key == "" {
		client = officer.Client(row)
	}
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	var send io.Reader
	if body != "" {
		send = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, send)
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	wait.Read(t, path, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	wait.Read(t, path, err)
	where, _, _ := strings.Cut(path, "?")
	if err := openapi.Check(method, where, resp, text); err != nil && method != http.MethodHead {
		t.Error(err)
	}
	return Answer{resp.StatusCode, resp.Header, string(text)}
}

// Explain returns the decision of a task for a principal of the tenant; "" is the default task, and the tenant's only key.
func (g *Gateway) Explain(t *testing.T, tenant, task, principal string) string {
	t.Helper()
	q := url.Values{}
	for name, value := range map[string]string{"task": task, "principal": principal} {
		if value != "" {
			q.Set(name, value)
		}
	}
	a := g.AskAdmin(t, "", http.MethodGet, "/v1/tenants/"+tenant+"/decision?"+q.Encode(), "")
	return a.Body
}
