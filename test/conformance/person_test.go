package conformance_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/wait"
)

// A situation is one run of a scenario of authorization, as the suite tells its client.
type situation struct {
	scenario string
	server   string // the URL of the suite's MCP server
	context  string // what the client knows beforehand, as JSON; "" if nothing
}

// maxConsents is how often the person connects the server, if each call asks for it.
const maxConsents = 3

// A desk is the place of an operator: a folder with a configuration, and the Switchboard that serves it.
type desk struct {
	program, dir, front string
}

// row returns the row of the suite's server. It writes the secrets that the row names into the folder.
func (s *situation) row(dir string) (string, error) {
	var known struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Key    string `json:"private_key_pem"`
		Issuer string `json:"issuer"`
	}
	if s.context != "" {
		if err := json.Unmarshal([]byte(s.context), &known); err != nil {
			return "", err
		}
	}
	var err error
	kind, keys := "operator", []string{}
	if strings.HasPrefix(s.scenario, "auth/client-credentials") {
		kind = "client"
	}
	if s.scenario == "auth/basic-cimd" { // the document that the suite knows; a Switchboard at a desk has none of its own
		known.ID = "https://conformance-test.local/client-metadata.json"
	}
	if known.ID != "" {
		keys = append(keys, fmt.Sprintf("id: %q", known.ID))
	}
	for name, secret := range map[string]string{"secret": known.Secret, "key": known.Key} {
		if secret == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(secret), 0o600); err != nil {
			return "", err
		}
		keys = append(keys, fmt.Sprintf("%s: \"${file:%s}\"", name, name))
	}
	if known.Issuer == "" && known.Secret+known.Key != "" { // an operator reads it in the provider's documents
		if known.Issuer, err = issuerOf(s.server); err != nil {
			return "", err
		}
	}
	if known.Issuer != "" {
		keys = append(keys, fmt.Sprintf("issuer: %q", known.Issuer))
	}
	return fmt.Sprintf("{transport: http, url: %q, credential: {%s: {%s}}}", s.server, kind, strings.Join(keys, ", ")), nil
}

// issuerOf returns the issuer that the server's metadata names.
func issuerOf(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	for _, path := range []string{"/.well-known/oauth-protected-resource" + u.Path, "/.well-known/oauth-protected-resource"} {
		resp, err := http.Get(u.Scheme + "://" + u.Host + path)
		if err != nil {
			return "", err
		}
		var m struct {
			Issuers []string `json:"authorization_servers"`
		}
		err = json.NewDecoder(resp.Body).Decode(&m)
		_ = resp.Body.Close()
		if err == nil && len(m.Issuers) > 0 {
			return m.Issuers[0], nil
		}
	}
	return "", fmt.Errorf("%s names no issuer", server)
}

// play plays the operator of a Switchboard in front of the suite's server: the operator writes the row, starts Switchboard, connects the server,
// and calls its tool. It returns how that has ended.
func (s *situation) play(t *testing.T, program string) (string, error) {
	dir := t.TempDir()
	row, err := s.row(dir)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "switchboard.yaml"), []byte("servers:\n  suite: "+row+"\n"), 0o600); err != nil {
		return "", err
	}
	front, stop, err := serveIn(t, program, dir)
	if err != nil {
		return "", err
	}
	defer stop()
	d := &desk{program: program, dir: dir, front: front}
	said := ""
	for range maxConsents {
		if !strings.HasPrefix(s.scenario, "auth/client-credentials") {
			if err := d.connect(t.Context()); err != nil {
				return err.Error(), nil
			}
		}
		if said, err = d.call(t.Context()); err != nil || !strings.Contains(said, "SB-AUTH-005") && !strings.Contains(said, "needs_connection") {
			return said, err
		}
	}
	return said, nil
}

// connect runs "switchboard server connect", and plays the person's browser. The error is what the command said if it did not succeed.
func (d *desk) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.program, "server", "connect", "suite", "--no-browser")
	cmd.Dir = d.dir
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	errs := &bytes.Buffer{}
	cmd.Stderr = errs
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // nothing is written
	page := ""
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if address := strings.TrimSpace(lines.Text()); strings.HasPrefix(address, "http") {
			page = browse(ctx, address)
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("not connected: %s%s", errs, page)
	}
	return nil
}

// browse opens an address, as a browser whose person says yes to everything, and returns what it shows at the end if that is no success.
func browse(ctx context.Context, address string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if page, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		return fmt.Sprintf("the browser shows %s %s", resp.Status, page)
	}
	return ""
}

// settleTime is how long a Switchboard may take to use a new connection: it promises a second.
const settleTime = 5 * time.Second

// call calls the tool of the suite's server, and returns the answer. Until Switchboard has listed what the server offers, it knows no such tool. Then call
// calls again, until the server turns out to need a connection: the result is its row of "server list".
func (d *desk) call(ctx context.Context) (string, error) {
	began := time.Now()
	for {
		tried := time.Now()
		answer, err := ask(ctx, d.front, "tools/call", `"name":"test-tool","arguments":{}`)
		if err != nil || !strings.Contains(answer, "SB-CAP") && !strings.Contains(answer, "SB-ROUT") && !strings.Contains(answer, "unknown tool") {
			return answer, err
		}
		if time.Since(began) > settleTime {
			cmd := exec.CommandContext(ctx, d.program, "server", "list")
			cmd.Dir = d.dir
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(out), "needs_connection") {
				return string(out), err
			}
		}
		if time.Since(began) > patience/2 {
			return answer, nil
		}
		<-time.After(wait.Pause(time.Since(began), time.Since(tried)))
	}
}

// ask sends a request to a switchboard, and returns the body of the answer.
func ask(ctx context.Context, front, method, params string) (string, error) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s%s}}`, method, params,
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"`+modern+`","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, front, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": modern, "Mcp-Method": method, "Mcp-Name": "test-tool",
	} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(resp.Body)
	return string(answer), err
}

// askDesk is the command that the suite starts for a scenario of authorization: it has the test play it, since the test knows the programs.
func askDesk(desk, server string) error {
	if !strings.HasPrefix(os.Getenv("MCP_CONFORMANCE_SCENARIO"), "auth/") {
		return nil
	}
	resp, err := http.PostForm(desk, url.Values{
		"server": {server}, "scenario": {os.Getenv("MCP_CONFORMANCE_SCENARIO")}, "context": {os.Getenv("MCP_CONFORMANCE_CONTEXT")},
	})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
