package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/credential"
	"github.com/summit-switchboard/switchboard/internal/oauth"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// connectionFlags name the server and the owner of a connection.
type connectionFlags struct {
	Config    string               `help:"The configuration with the server." placeholder:"FILE" default:"${config}"`
	MCPConfig string               `name:"mcp-config" help:"The mcpServers JSON of a client with the server, in its place; it needs --data." placeholder:"FILE"`
	Data      string               `help:"The data folder of the Switchboard that serves, unless that is .switchboard beside the configuration." placeholder:"DIR"`
	ID        switchboard.ServerID `arg:"" help:"The server."`
	For       string               `help:"The connection of a caller with a key, where each caller has its own (credential: {user: …}). Without it: the operator's, which lists the tools, and which you use without a key." placeholder:"TENANT/KEY"`
}

// open returns the row of the server, the owner of the connection, and the store of connections, which the caller closes.
func (c *connectionFlags) open(ctx context.Context, log *slog.Logger) (*switchboard.Server, vault.Owner, *app.ConnectionStore, error) {
	common := commonFlags{Config: c.Config, MCPConfig: c.MCPConfig, Data: c.Data}
	cfg, err := common.loadConfig(ctx, log, config.Options{})
	if err != nil {
		return nil, vault.Owner{}, nil, err
	}
	i := slices.IndexFunc(cfg.Servers, func(s switchboard.Server) bool { return s.ID == c.ID })
	if i < 0 {
		known := make([]string, len(cfg.Servers))
		for i := range cfg.Servers {
			known[i] = string(cfg.Servers[i].ID)
		}
		return nil, vault.Owner{}, nil, usageError{fmt.Errorf("there is no server %q in %s%s", c.ID, common.configPath(), config.SuggestName(string(c.ID), "servers", known))}
	}
	s := &cfg.Servers[i]
	owner, err := c.owner(cfg, s)
	if err != nil {
		return nil, vault.Owner{}, nil, usageError{err}
	}
	connections, err := app.OpenConnections(ctx, common.dataDir(), cfg, log)
	return s, owner, connections, err
}

// owner returns the owner of the connection.
func (c *connectionFlags) owner(cfg *config.Config, s *switchboard.Server) (vault.Owner, error) {
	if c.For == "" {
		return credential.OwnerOf(s, nil), nil
	}
	tenant, id, ok := strings.Cut(c.For, "/")
	if !ok || !slices.ContainsFunc(cfg.Keys, func(k config.Key) bool { return string(k.Tenant) == tenant && k.ID == id }) {
		return vault.Owner{}, fmt.Errorf("--for %q is no key of a tenant; write TENANT/KEY, such as acme/laptop", c.For)
	}
	if s.Credential.Kind != switchboard.CredentialUser {
		return vault.Owner{}, fmt.Errorf("the callers of server %s have no connections of their own; credential: {user: {}} in its row gives each of them one", s.ID)
	}
	return credential.OwnerOf(s, &switchboard.Principal{Tenant: switchboard.TenantID(tenant), ID: id}), nil
}

// byCommand is the officer of connections that a command makes or ends. Anyone who can read the data folder is this officer.
var byCommand = receipt.Subject{ID: switchboard.LocalID, Auth: switchboard.AuthDataFolder}

type serverConnectCmd struct {
	connectionFlags
	NoBrowser bool `help:"Only print the address: open it on any machine, and paste here the address at which you arrive."`
	Port      int  `help:"The port of the loopback address to which the provider sends your browser back; any free one by default. Some providers want it registered." placeholder:"N"`
}

// Run connects the server: the person signs in at the server's provider and consents.
func (s *serverConnectCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	server, owner, connections, err := s.open(ctx, log)
	if err != nil {
		return err
	}
	defer connections.Close() //nolint:errcheck // what was saved is durable already
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)))
	if err != nil {
		return fmt.Errorf("your browser cannot come back: %w; --port names another port", err)
	}
	redirect := "http://" + l.Addr().String() + "/callback"
	consent, err := connections.Broker.Begin(ctx, server, owner, redirect)
	if err != nil {
		_ = l.Close()
		if errors.Is(err, credential.ErrNotDemanded) {
			_, err = fmt.Fprintf(io.out, "%s answers without a sign-in: there is nothing to connect\n", server.ID)
		}
		return err
	}
	consent.By = byCommand
	s.explain(ctx, io, server, consent)
	ctx, cancel := context.WithTimeout(ctx, vault.TicketTime)
	defer cancel()
	query, answer, err := awaitAnswer(ctx, l, io.in, consent)
	if err != nil {
		return fmt.Errorf("%s is not connected: %w", server.ID, err)
	}
	err = connections.Broker.End(ctx, server, consent, query)
	answer(err)
	if err != nil {
		return fmt.Errorf("%s is not connected: %w", server.ID, err)
	}
	fmt.Fprintf(io.out, "%s is connected. A running Switchboard uses the connection within a second.\n", server.ID)
	return nil
}

// explain says what the person will be asked, and opens the browser.
func (s *serverConnectCmd) explain(ctx context.Context, io streams, server *switchboard.Server, c *credential.Consent) {
	scopes := "what the provider decides"
	if len(c.Scopes) > 0 {
		scopes = strings.Join(c.Scopes, " ")
	}
	fmt.Fprintf(io.out, "Server    %s (%s)\nProvider  %s\nScopes    %s\n\n", server.ID, printable(server.URL, 200), printable(c.Issuer, 200), printable(scopes, 400))
	if !s.NoBrowser && openBrowser(ctx, c.Address) == nil {
		fmt.Fprintf(io.out, "Your browser opens the provider's page. If it does not, open this address:\n\n    %s\n\n", c.Address)
		return
	}
	fmt.Fprintf(io.out, "Open this address in a browser, on any machine:\n\n    %s\n\nOn another machine, the browser ends at an address that it cannot open. Paste that address here:\n", c.Address)
}

// maxAnswerLine limits a pasted address.
const maxAnswerLine = 32 << 10

// awaitAnswer returns the query with which the provider sends the browser back: to the listener, or as an address that the person pastes. answer shows the
// browser the outcome.
func awaitAnswer(ctx context.Context, l net.Listener, in io.Reader, c *credential.Consent) (query url.Values, answer func(error), err error) {
	ctx, cancel := context.WithCancel(ctx)
	type arrival struct {
		query  url.Values
		answer func(error)
	}
	arrived := make(chan arrival)
	send := func(a arrival) bool {
		select {
		case arrived <- a:
			return true
		case <-ctx.Done():
			return false
		}
	}
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/callback" || r.Method != http.MethodGet || r.Host != l.Addr().String() || !c.IsAnswer(r.URL.Query()) {
			http.NotFound(w, r) // a guess of somebody else must not end the sign-in
			return
		}
		outcome := make(chan error, 1)
		if !send(arrival{r.URL.Query(), func(err error) { outcome <- err }}) {
			http.NotFound(w, r)
			return
		}
		writeOutcome(w, c, <-outcome)
	})}
	go func() { _ = srv.Serve(l) }()
	stop := func() {
		cancel()
		ending, done := context.WithTimeout(context.Background(), 2*time.Second)
		defer done()
		_ = srv.Shutdown(ending)
	}
	go readPasted(in, c, func(q url.Values) { send(arrival{q, func(error) {}}) })
	select {
	case a := <-arrived:
		return a.query, func(err error) { a.answer(err); stop() }, nil
	case <-ctx.Done():
		stop()
		return nil, nil, cmp.Or(context.Cause(ctx), ctx.Err())
	}
}

// readPasted reads lines until one is the address of an answer.
func readPasted(in io.Reader, c *credential.Consent, found func(url.Values)) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxAnswerLine)
	for lines.Scan() {
		if u, err := url.Parse(strings.TrimSpace(lines.Text())); err == nil && c.IsAnswer(u.Query()) {
			found(u.Query())
			return
		}
	}
}

// writeOutcome shows the browser how the sign-in has ended.
func writeOutcome(w http.ResponseWriter, c *credential.Consent, err error) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	title, text := "Connected", fmt.Sprintf("Server %s is connected. You can close this window.", c.Owner.Server)
	if err != nil {
		title, text = "Not connected", fmt.Sprintf("Server %s is not connected: %v", c.Owner.Server, err)
		w.WriteHeader(http.StatusBadRequest)
	}
	fmt.Fprintf(w, "<!doctype html><html lang=en><meta charset=utf-8><title>%s</title><h1>%s</h1><p>%s</p></html>\n", title, title, html.EscapeString(text))
}

type serverDisconnectCmd struct{ connectionFlags }

// Run ends a connection: the tokens are deleted here, and revoked at the provider where it can do so.
func (s *serverDisconnectCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	server, owner, connections, err := s.open(ctx, log)
	if err != nil {
		return err
	}
	defer connections.Close() //nolint:errcheck // what was deleted is gone already
	switch err := connections.Broker.Disconnect(ctx, server, owner, byCommand); {
	case errors.Is(err, vault.ErrNone):
		fmt.Fprintf(io.out, "%s has no connection\n", server.ID)
	case errors.Is(err, oauth.ErrNoRevocation):
		fmt.Fprintf(io.out, "%s is disconnected. Its provider cannot revoke tokens: to be sure, also remove Switchboard from the applications of your account there.\n", server.ID)
	case err != nil:
		return fmt.Errorf("%s is disconnected here, but its tokens may live on until they expire; remove Switchboard from the applications of your account at its provider: %w", server.ID, err)
	default:
		fmt.Fprintf(io.out, "%s is disconnected, and its tokens are revoked\n", server.ID)
	}
	return nil
}
