package rig

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// Row returns the row of g in its data folder, as it was when it was first read.
func (g *Gateway) Row() (serving.Neighbor, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.row.ID != "" {
		return g.row, nil
	}
	row, err := officer.Row(g.URL, dataOf(g.Cmd, g.Dir), filepath.Join(os.Getenv("SWITCHBOARD_HOME"), ".switchboard"))
	if err == nil {
		g.row = row
	}
	return row, err
}

// dataOf returns the data folder of a command that serves from dir.
func dataOf(cmd *exec.Cmd, dir string) string {
	if cmd == nil {
		return filepath.Join(dir, ".switchboard")
	}
	if i := slices.Index(cmd.Args, "--data"); i >= 0 {
		if folder := cmd.Args[i+1]; filepath.IsAbs(folder) {
			return folder
		}
		return filepath.Join(dir, cmd.Args[i+1])
	}
	return filepath.Join(dir, ".switchboard")
}

// folders has the data folders of gateways by their URLs.
var folders sync.Map

// withFolder adds the data folder of the gateway to the arguments of a command that names its URL.
func withFolder(args []string) []string {
	i := slices.Index(args, "--url")
	if i < 0 || i+1 == len(args) || slices.Contains(args, "--data") {
		return args
	}
	if folder, ok := folders.Load(args[i+1]); ok {
		return append(slices.Clone(args), "--data", folder.(string))
	}
	return args
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
