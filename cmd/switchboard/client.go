package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// target is which Switchboard a command asks: a running one by URL, or one
// that it starts for itself.
type target struct {
	common
	asked
	Task switchboard.TaskID `help:"The task. Without it, the tenant's default task." placeholder:"ID"`
}

// asked are the flags of commands that ask a running Switchboard or start one.
type asked struct {
	URL   string        `name:"url" env:"SWITCHBOARD_URL" help:"Ask the Switchboard that runs at URL. Without it: the one that serves from this folder, or else one that is started for this. A key, if it wants one, is taken from the environment: SWITCHBOARD_KEY." placeholder:"URL"`
	Alone bool          `help:"Start the servers for this, though a Switchboard serves from this folder."`
	Wait  time.Duration `help:"Wait so long for servers that have not answered since they were started." placeholder:"TIME" default:"60s"`
}

// url returns the URL of the running Switchboard to ask; "" means to start one.
func (a *asked) url(c *common) string {
	if a.URL != "" || a.Alone || c.MCPConfig != "" {
		return a.URL
	}
	if at, ok := c.served(); ok && at.Tenant == c.Tenant {
		return at.URL
	}
	return ""
}

// maxAnswer bounds what a command reads of one answer.
const maxAnswer = 64 << 20

// A client asks a Switchboard, as any MCP client of 2026-07-28 would, and gets
// the bytes of the result.
type client struct {
	send func(ctx context.Context, method, name string, message []byte) ([]byte, error)
	stop func()
}

// connect returns a client of the target, which keeps in the folder data what outlives
// it; "" means nothing. A target that is started is waited for until it shows the tool.
// Call its stop in the end.
func (t *target) connect(ctx context.Context, io streams, log *slog.Logger, data, tool string) (*client, error) {
	if t.URL = t.url(&t.common); t.URL != "" {
		return t.overHTTP()
	}
	a, err := t.start(ctx, log, app.Options{Data: data})
	if err != nil {
		return nil, err
	}
	if err := t.await(ctx, io, a, tool); err != nil {
		a.Stop()
		return nil, err
	}
	return t.overPipes(ctx, a), nil
}

// await waits for servers that are starting, until the task shows the tool.
func (t *target) await(ctx context.Context, io streams, a *app.App, tool string) error {
	_, err := untilAnswered(ctx, io, t.Wait, func() (any, []switchboard.ServerID, error) {
		x, err := a.Explain(ctx, identity.Local(t.Tenant), app.ExplainQuery{Task: t.Task})
		if err != nil || slices.ContainsFunc(x.Tools, func(e app.ExplainedTool) bool { return e.Name == tool }) {
			return nil, nil, nil // the call says what is wrong
		}
		return nil, x.Starting, nil
	})
	return err
}

// overPipes returns a client of a.
func (t *target) overPipes(ctx context.Context, a *app.App) *client {
	ctx, cancel := context.WithCancel(ctx)
	clientIn, serverOut := io.Pipe()
	serverIn, clientOut := io.Pipe()
	var served sync.WaitGroup
	served.Go(func() {
		err := a.ServeStdio(ctx, serverIn, serverOut, t.Task)
		_ = serverOut.CloseWithError(errors.Join(io.EOF, err))
	})
	lines := wire.NewLineReader(clientIn, maxAnswer)
	return &client{
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

// base returns where the target listens, without a path.
func (t *target) base() (string, error) {
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return "", usageError{fmt.Errorf("--url %q: want http://HOST:PORT", t.URL)}
	}
	return u.Scheme + "://" + u.Host, nil
}

// keyVariable holds the API key with which commands ask a running Switchboard.
const keyVariable = "SWITCHBOARD_KEY"

func (t *target) overHTTP() (*client, error) {
	endpoint, err := t.base()
	if err != nil {
		return nil, err
	}
	endpoint += "/mcp"
	if t.Task != "" {
		endpoint += "/tasks/" + url.PathEscape(string(t.Task))
	}
	return &client{
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
			body, err := fetchAnswer(req)
			if err != nil {
				return nil, err
			}
			return body, nil
		},
	}, nil
}

// fetchAnswer sends req with the key and returns the JSON-RPC answer.
func fetchAnswer(req *http.Request) ([]byte, error) {
	if key := os.Getenv(keyVariable); key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(req)
	if err != nil {
		return nil, unreachable{nobody(req.URL, err)}
	}
	defer func() { _ = resp.Body.Close() }()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil {
			return nil, unreachable{err}
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
			return nil, unreachable{fmt.Errorf("the stream ended without an answer: %w", err)}
		}
		if m, err := wire.ParseEnvelope(e.Data); err == nil && m.Kind == wire.Response {
			return bytes.Clone(e.Data), nil
		}
	}
}

// nobody says that u gave no answer, and why where the reason is not the usual.
func nobody(u *url.URL, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("nothing answers at %s://%s; is `switchboard serve` running?", u.Scheme, u.Host)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL, which we name ourselves
	}
	return fmt.Errorf("nothing answers at %s://%s; is `switchboard serve` running there? %w", u.Scheme, u.Host, err)
}

// An answerError is a JSON-RPC error object with which a Switchboard answered.
type answerError struct {
	Message string `json:"message"`
	Data    struct {
		Code switchboard.Code `json:"code"`
		Hint string           `json:"hint"`
	} `json:"data"`
}

// ask sends one request and returns the bytes of its result. An error with
// which Switchboard answered is a *switchboard.Error with its text.
func (c *client) ask(ctx context.Context, method, name string, params ...wire.Edit) ([]byte, error) {
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
		return nil, fmt.Errorf("what answers is no MCP server: %w", err)
	}
	if m.ErrorObject != nil {
		e := &answerError{}
		if err := json.Unmarshal(m.ErrorObject, e); err != nil {
			return nil, fmt.Errorf("what answers is no Switchboard: %s", m.ErrorObject)
		}
		return nil, &switchboard.Error{Code: e.Data.Code, Text: e.Message, Hint: e.Data.Hint}
	}
	return bytes.Clone(m.Result), nil
}
