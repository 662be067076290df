package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/join"
	"github.com/summit-switchboard/switchboard/internal/serving"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// taskTarget says which Switchboard a command uses: a running one, by its URL, or one that the command
// starts.
type taskTarget struct {
	commonFlags
	targetFlags
	Task switchboard.TaskID `help:"The task. Without it, the tenant's default task." placeholder:"ID"`

	row     *serving.Neighbor `kong:"-"` // see runningURL
	guessed bool              `kong:"-"` // see runningURL
	fault   error             `kong:"-"` // see runningURL
}

// targetFlags are the flags of commands that use a running Switchboard or start one.
type targetFlags struct {
	URL   string        `name:"url" env:"SWITCHBOARD_URL" help:"Use the Switchboard at URL. Without it: the one that serves from this folder, else one started for this command. The API key, if needed, is read from the environment variable SWITCHBOARD_KEY." placeholder:"URL"`
	Alone bool          `help:"Start the servers for this command, even if a Switchboard serves from this folder."`
	Wait  time.Duration `help:"Wait at most TIME for servers that are still starting." placeholder:"TIME" default:"60s"`
}

// findTarget finds the running Switchboard to ask about a tenant, and reports whether there is one. Otherwise the command starts one. Its
// admin API answers about each tenant that it serves. A process whose keyless callers belong to the tenant comes first.
func (t *taskTarget) findTarget() bool {
	return t.findFor(t.Tenant) || t.findFor("")
}

// findFor is findTarget for a process whose keyless callers belong to the tenant; "" means any process.
func (t *taskTarget) findFor(tenant switchboard.TenantID) bool {
	if t.URL != "" {
		at := t.findRunningAt(t.URL)
		t.row, t.fault = at.row, at.fault
	} else if !t.Alone && t.MCPConfig == "" {
		if row, ok := t.findNearby(tenant); ok {
			at := runningAt(row)
			t.URL, t.row = at.URL, at.row
		}
	}
	return t.URL != ""
}

// findForCall finds the running Switchboard for a call in the tenant, and reports whether there is one. It has to be a process whose
// keyless callers belong to the tenant, unless an agent's key says the tenant. If others serve, findForCall prints why the call does not use them.
func (t *taskTarget) findForCall(stderr io.Writer) bool {
	tenant := t.Tenant
	if strings.HasPrefix(os.Getenv(keyVariable), identity.AgentPrefix) {
		tenant = ""
	}
	if t.findFor(tenant) {
		return true
	}
	if other, ok := t.findNearby(""); ok && !t.Alone && t.MCPConfig == "" {
		fmt.Fprintf(stderr, "switchboard: this command starts the servers itself: the Switchboard that serves from this folder takes calls without a key for tenant %s only. "+
			"With a key of tenant %s in %s, it takes the call\n", other.Tenant, tenant, keyVariable)
	}
	return false
}

// client returns the HTTP client for requests to the target. It follows no redirect.
func (t *taskTarget) client() *http.Client {
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if row := t.row; row != nil {
		// This connection has no TLS, even if the address of the row's URL is served with TLS: both sides prove that they have
		// the token.
		dial := func(context.Context, string, string) (net.Conn, error) {
			return join.Dial(row.Address, row.Token, join.Joiner{Purpose: join.Operate}, nil)
		}
		c.Transport = &http.Transport{DisableKeepAlives: true, DialContext: dial, DialTLSContext: dial}
	}
	return c
}

// maxAnswer limits the size of one answer that a command reads.
const maxAnswer = 64 << 20

// An mcpClient sends requests to a Switchboard as an MCP client of 2026-07-28 does, and returns the
// bytes of the result.
type mcpClient struct {
	send func(ctx context.Context, method, name string, message []byte) ([]byte, error)
	stop func()
}

// connect returns a client of the target. If it starts a Switchboard, that stores its data in the
// folder data ("" stores nothing), and connect waits until it shows the tool. The caller must call
// stop in the end.
func (t *taskTarget) connect(ctx context.Context, io streams, log *slog.Logger, data, tool string) (*mcpClient, error) {
	if t.findForCall(io.err) {
		return t.connectHTTP()
	}
	a, err := t.startApp(ctx, log, app.Options{Data: data})
	if err != nil {
		return nil, err
	}
	if err := t.waitForTool(ctx, io, a, tool); err != nil {
		a.Stop()
		return nil, err
	}
	return t.connectPipes(ctx, a), nil
}

// waitForTool waits for servers that are starting until the task shows the tool.
func (t *taskTarget) waitForTool(ctx context.Context, io streams, a *app.App, tool string) error {
	_, err := pollUntilStarted(ctx, io, t.Wait, func() (any, []switchboard.ServerID, error) {
		x, err := a.Reads().Explain(ctx, identity.Local(t.Tenant), admin.ExplainQuery{Task: t.Task})
		if err != nil || slices.ContainsFunc(x.Tools, func(e admin.ExplainedTool) bool { return e.Name == tool }) {
			return nil, nil, nil // the call itself reports the error
		}
		return nil, x.Starting, nil
	})
	return err
}

// connectPipes returns a client of a, over pipes in memory.
func (t *taskTarget) connectPipes(ctx context.Context, a *app.App) *mcpClient {
	ctx, cancel := context.WithCancel(ctx)
	clientIn, serverOut := io.Pipe()
	serverIn, clientOut := io.Pipe()
	var served sync.WaitGroup
	served.Go(func() {
		err := a.ServeStdio(ctx, serverIn, serverOut, t.Task)
		_ = serverOut.CloseWithError(errors.Join(io.EOF, err))
	})
	lines := wire.NewLineReader(clientIn, maxAnswer)
	return &mcpClient{
		send: func(_ context.Context, _, _ string, message []byte) ([]byte, error) {
			if _, err := clientOut.Write(append(message, '\n')); err != nil {
				return nil, err
			}
			for {
				line, err := lines.Next()
				if err != nil {
					return nil, err
				}
				if m, err := wire.ParseEnvelope(line); err == nil && m.Kind == wire.Response {
					return bytes.Clone(line), nil
				}
			}
		},
		stop: func() {
			_ = clientOut.Close()
			cancel()
			served.Wait()
			a.Stop()
		},
	}
}

// errPortZero says that a configuration with port 0 names no address.
var errPortZero = unreachableError{errors.New("the configuration has port 0, so each start takes a free port, and no Switchboard that serves it has written its address into its data folder; is it running? One with another data folder is named with --data, or with --url and a person's key in " + keyVariable)}

// baseURL returns the target's URL without a path.
func (t *taskTarget) baseURL() (string, error) {
	u, err := url.Parse(t.URL)
	switch {
	case err == nil && u.User != nil:
		return "", usageError{fmt.Errorf("--url: want http://HOST:PORT, without a user; the key is read from %s", keyVariable)}
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", usageError{fmt.Errorf("--url %q: want http://HOST:PORT", t.URL)}
	case u.Port() == "0":
		return "", errPortZero
	}
	return u.Scheme + "://" + u.Host, nil
}

// keyVariable names the environment variable with the API key for a running Switchboard.
const keyVariable = "SWITCHBOARD_KEY"

func (t *taskTarget) connectHTTP() (*mcpClient, error) {
	endpoint, err := t.baseURL()
	if err != nil {
		return nil, err
	}
	endpoint += "/mcp"
	if t.Task != "" {
		endpoint += "/tasks/" + url.PathEscape(string(t.Task))
	}
	return &mcpClient{
		stop: func() {},
		send: func(ctx context.Context, method, name string, message []byte) ([]byte, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(message))
			if err != nil {
				return nil, err
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			req.Header.Set(wire.HeaderProtocolVersion, wire.Latest)
			req.Header.Set(wire.HeaderMethod, method)
			if name != "" {
				req.Header.Set(wire.HeaderName, wire.EncodeHeader(name))
			}
			body, err := t.fetchAnswer(req)
			if err != nil {
				return nil, err
			}
			return body, nil
		},
	}, nil
}

// fetchAnswer sends req with the key and returns the JSON-RPC answer.
func (t *taskTarget) fetchAnswer(req *http.Request) ([]byte, error) {
	if key := os.Getenv(keyVariable); key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	connected := false
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}))
	resp, err := t.client().Do(req)
	switch {
	case err != nil && connected:
		return nil, lostCallError(req.URL, err)
	case err != nil:
		return nil, unreachableError{noAnswerError(req.URL, err)}
	}
	defer func() { _ = resp.Body.Close() }()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil {
			return nil, lostCallError(req.URL, err)
		}
		if !json.Valid(body) {
			return nil, fmt.Errorf("%s answered %s: %.200q", req.URL.Redacted(), resp.Status, body)
		}
		return body, nil
	}
	events := wire.NewEventReader(resp.Body, maxAnswer)
	for {
		e, err := events.Next()
		if err != nil {
			return nil, lostCallError(req.URL, err)
		}
		if m, err := wire.ParseEnvelope(e.Data); err == nil && m.Kind == wire.Response {
			return bytes.Clone(e.Data), nil
		}
	}
}

// lostCallError returns the error of a connection to u that broke after an MCP request had left, or might have left.
func lostCallError(u *url.URL, err error) error {
	return unknownOutcomeError{fmt.Errorf("%w. A call may have been made: look before you repeat it, with switchboard receipts list --kind call", lostAnswerText(u, err))}
}

// noAnswerError returns the error for a URL that gave no answer. It includes the cause, unless the
// connection was refused.
func noAnswerError(u *url.URL, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("nothing answers at %s://%s; is `switchboard serve` running?", u.Scheme, u.Host)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL, which is in the text below
	}
	return fmt.Errorf("nothing answers at %s://%s; is `switchboard serve` running there? %w", u.Scheme, u.Host, err)
}

// An answerError is the JSON-RPC error object in an answer of a Switchboard.
type answerError struct {
	Message string `json:"message"`
	Data    struct {
		Code switchboard.Code `json:"code"`
		Hint string           `json:"hint"`
	} `json:"data"`
}

// request sends one request and returns the bytes of its result. If Switchboard answers with an error,
// request returns it as a *switchboard.Error.
func (c *mcpClient) request(ctx context.Context, method, name string, params ...wire.Edit) ([]byte, error) {
	meta := wire.Rewrite(nil, []byte(`{}`),
		wire.Edit{Name: wire.MetaProtocolVersion, Value: wire.AppendString(nil, wire.Latest)},
		wire.Edit{Name: wire.MetaClientInfo, Value: []byte(`{"name":"switchboard-cli","version":"1"}`)},
		wire.Edit{Name: wire.MetaResults, Value: []byte(`"whole"`)},
		wire.Edit{Name: wire.MetaClientCapabilities, Value: []byte(`{}`)})
	body := wire.Rewrite(nil, []byte(`{}`), append(params, wire.Edit{Name: "_meta", Value: meta})...)
	answer, err := c.send(ctx, method, name, wire.AppendRequest(nil, []byte("1"), method, body))
	if err != nil {
		return nil, err
	}
	m, err := wire.ParseEnvelope(answer)
	if err != nil {
		return nil, fmt.Errorf("the answer is not from an MCP server: %w", err)
	}
	if m.ErrorObject != nil {
		e := &answerError{}
		if err := json.Unmarshal(m.ErrorObject, e); err != nil {
			return nil, fmt.Errorf("the answer is not from Switchboard: %s", m.ErrorObject)
		}
		return nil, &switchboard.Error{Code: e.Data.Code, Text: e.Message, Hint: e.Data.Hint}
	}
	return bytes.Clone(m.Result), nil
}
