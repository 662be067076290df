package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"

	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type serverCmd struct {
	List    serverListCmd    `cmd:"" help:"List the servers and how fit each is."`
	Disable serverDisableCmd `cmd:"" help:"Take a server out of service: calls under way go on, new ones go elsewhere or are refused. It lasts until it is enabled, for all replicas and over restarts."`
	Enable  serverEnableCmd  `cmd:"" help:"Put a server back into service."`
	Restart serverRestartCmd `cmd:"" help:"End a server's processes and sessions, and make them anew."`
}

// running is the Switchboard that a command is for.
type running struct {
	output
	where
}

// where is where a running Switchboard is.
type where struct {
	URL    string `name:"url" env:"SWITCHBOARD_URL" help:"Ask the Switchboard that runs at URL. Without it: the one that serves from this folder, or else the address in the configuration." placeholder:"URL"`
	Config string `help:"The configuration that it serves." placeholder:"FILE" default:"switchboard.yaml"`
	Data   string `help:"Its folder, where that is not .switchboard beside the configuration." placeholder:"DIR"`
}

// target is the Switchboard itself.
func (w *where) target() *target {
	return &target{asked: asked{URL: (&common{Config: w.Config, Data: w.Data}).address(w.URL)}}
}

type serverListCmd struct{ running }

// Run prints the servers. Whether all is well, status says.
func (s *serverListCmd) Run(ctx context.Context, io streams) error {
	var st app.StatusReport
	if err := s.target().inspect(ctx, "/v1/status", &st); err != nil {
		return err
	}
	if s.JSON {
		return json.NewEncoder(io.raw).Encode(st.Servers)
	}
	writeServers(io.out, st.Servers)
	return nil
}

type serverDisableCmd struct {
	running
	ID     switchboard.ServerID `arg:"" help:"The server."`
	Reason string               `help:"Why: shown by status, and kept from clients." placeholder:"TEXT"`
}

// Run takes the server out of service.
func (s *serverDisableCmd) Run(ctx context.Context, io streams) error {
	return s.operate(ctx, io, s.ID, "disable", s.Reason)
}

type serverEnableCmd struct {
	running
	ID switchboard.ServerID `arg:"" help:"The server."`
}

// Run puts the server back into service.
func (s *serverEnableCmd) Run(ctx context.Context, io streams) error {
	return s.operate(ctx, io, s.ID, "enable", "")
}

type serverRestartCmd struct {
	running
	ID switchboard.ServerID `arg:"" help:"The server."`
}

// Run restarts the server.
func (s *serverRestartCmd) Run(ctx context.Context, io streams) error {
	return s.operate(ctx, io, s.ID, "restart", "")
}

// operate asks for something to be done to a server, and prints what has come of
// it.
func (s *running) operate(ctx context.Context, io streams, id switchboard.ServerID, what, reason string) error {
	if err := switchboard.CheckID(string(id)); err != nil {
		return usageError{err}
	}
	base, err := s.target().base()
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/servers/"+url.PathEscape(string(id))+"/"+what, bytes.NewReader(body))
	if err != nil {
		return usageError{err}
	}
	req.Header.Set("Content-Type", "application/json")
	if host := net.ParseIP(req.URL.Hostname()); host.IsLoopback() || req.URL.Hostname() == "localhost" { // nobody else gets the token
		token, err := identity.ReadOperator((&common{Config: s.Config, Data: s.Data}).data())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		req.Header.Set(identity.OperatorHeader, token.Reveal())
	}
	var done app.OperationResult
	if err := readAnswer(req, &done); err != nil {
		return err
	}
	if s.JSON {
		return json.NewEncoder(io.raw).Encode(done)
	}
	_, err = fmt.Fprintf(io.out, "%s is %s: %s\n", done.Server, done.State, done.Note)
	return err
}
