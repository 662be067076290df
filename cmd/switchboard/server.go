package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type serverCmd struct {
	Add        serverAddCmd        `cmd:"" help:"Add a server to the configuration. A running Switchboard takes it by itself."`
	Update     serverUpdateCmd     `cmd:"" help:"Show what another version of a server's package would change, and take it."`
	Remove     serverRemoveCmd     `cmd:"" help:"Remove servers from the configuration, with the secrets that commands wrote for them."`
	Connect    serverConnectCmd    `cmd:"" help:"Connect a server that demands a sign-in: your browser opens its provider's page, where you consent."`
	Disconnect serverDisconnectCmd `cmd:"" help:"End a connection: its tokens are deleted, and revoked at the provider."`
	List       serverListCmd       `cmd:"" help:"List the servers and their states."`
	Show       serverShowCmd       `cmd:"" help:"Show one server: its state and how that changed, who may use it, and what runs would do without it."`
	Disable    serverDisableCmd    `cmd:"" help:"Disable a server: calls in flight finish, new calls go to other servers or are refused. This lasts until the server is enabled, for all replicas and across restarts."`
	Enable     serverEnableCmd     `cmd:"" help:"Enable a disabled server."`
	Restart    serverRestartCmd    `cmd:"" help:"End a server's processes and sessions, and start new ones."`
	Probe      serverProbeCmd      `cmd:"" help:"Send a server a request without side effects now. If that fails, the server is quarantined."`
}

// serverFlags are the flags of commands about the servers of a running Switchboard.
type serverFlags struct {
	outputFlags
	locationFlags
}

// locationFlags say where a running Switchboard is.
type locationFlags struct {
	URL    string `name:"url" env:"SWITCHBOARD_URL" help:"Use the Switchboard at URL. Without it: the one that serves from this folder, else the address in the configuration." placeholder:"URL"`
	Config string `help:"The configuration that it serves." placeholder:"FILE" default:"${config}"`
	Data   string `help:"Its data folder, unless that is .switchboard beside the configuration." placeholder:"DIR"`
}

// asTarget returns the running Switchboard as a target.
func (w *locationFlags) asTarget() *taskTarget {
	at := (&commonFlags{Config: w.Config, Data: w.Data}).findAny(w.URL)
	return &taskTarget{targetFlags: targetFlags{URL: at.URL}, row: at.row, guessed: at.guessed, fault: at.fault}
}

// asAgentsTarget returns the running Switchboard as a target, at its address for agents.
func (w *locationFlags) asAgentsTarget() *taskTarget {
	t := w.asTarget()
	if t.row == nil && w.URL == "" {
		t.URL = localURL(cmp.Or(config.ListenAddress(w.Config), config.DefaultListen), config.ListensTLS(w.Config))
	}
	return t
}

type serverListCmd struct {
	serverFlags
	Tenant switchboard.TenantID `help:"Show only the servers that this tenant may use." placeholder:"ID"`
}

// Run prints the servers. Unlike status, it does not exit 1 if one of them is not healthy.
func (s *serverListCmd) Run(ctx context.Context, io streams) error {
	path := "/v1/status"
	if s.Tenant != "" {
		path += "?" + url.Values{"tenant": {string(s.Tenant)}}.Encode()
	}
	var st admin.StatusReport
	if err := s.asTarget().fetchInto(ctx, path, &st); err != nil {
		return err
	}
	if s.JSON {
		return json.NewEncoder(io.raw).Encode(st.Servers)
	}
	writeServers(io.out, st.Servers)
	return nil
}

type serverDisableCmd struct {
	serverFlags
	ID     switchboard.ServerID `arg:"" help:"The server."`
	Reason string               `help:"The reason: shown by status, and never to clients." placeholder:"TEXT"`
}

// Run disables the server.
func (s *serverDisableCmd) Run(ctx context.Context, io streams) error {
	return s.operateServer(ctx, io, s.ID, "disable", s.Reason)
}

type serverEnableCmd struct {
	serverFlags
	ID switchboard.ServerID `arg:"" help:"The server."`
}

// Run enables the server.
func (s *serverEnableCmd) Run(ctx context.Context, io streams) error {
	return s.operateServer(ctx, io, s.ID, "enable", "")
}

type serverRestartCmd struct {
	serverFlags
	ID switchboard.ServerID `arg:"" help:"The server."`
}

// Run restarts the server.
func (s *serverRestartCmd) Run(ctx context.Context, io streams) error {
	return s.operateServer(ctx, io, s.ID, "restart", "")
}

type serverProbeCmd struct {
	serverFlags
	ID switchboard.ServerID `arg:"" help:"The server."`
}

// Run has the server probed.
func (s *serverProbeCmd) Run(ctx context.Context, io streams) error {
	return s.operateServer(ctx, io, s.ID, "probe", "")
}

type serverShowCmd struct {
	serverFlags
	ID     switchboard.ServerID `arg:"" help:"The server."`
	Tenant switchboard.TenantID `help:"Show only what concerns this tenant." placeholder:"ID"`
}

// Run prints what is known about the server.
func (s *serverShowCmd) Run(ctx context.Context, io streams) error {
	if err := switchboard.CheckID(string(s.ID)); err != nil {
		return usageError{err}
	}
	path := "/v1/servers/" + url.PathEscape(string(s.ID))
	if s.Tenant != "" {
		path += "?" + url.Values{"tenant": {string(s.Tenant)}}.Encode()
	}
	var x admin.ServerReport
	if err := s.asTarget().fetchInto(ctx, path, &x); err != nil {
		return err
	}
	if s.JSON {
		return json.NewEncoder(io.raw).Encode(x)
	}
	writeServerReport(io.out, &x)
	return nil
}

// writeServerReport prints a server.
func writeServerReport(out io.Writer, x *admin.ServerReport) {
	writeServers(out, []admin.ServerStatus{x.ServerStatus})
	if len(x.Tenants) > 0 {
		fmt.Fprintf(out, "\nTenants that may use it: %s\n", joinIDs(x.Tenants))
	}
	fmt.Fprintf(out, "\nChanges of its state since %s\n", x.Seen.Local().Format(time.DateTime))
	for _, c := range x.Changes {
		what := string(c.To)
		if c.Tool != "" {
			what = "tool " + printable(c.Tool, 64) + ": " + what
		}
		if c.Cause != nil {
			what += ", " + c.Cause.Stage
			if c.Cause.Message != "" {
				what += ": " + printable(c.Cause.Message, 200)
			}
		}
		fmt.Fprintf(out, "  %s  %s\n", c.At.Local().Format(time.DateTime), what)
	}
	for i, u := range x.Uses {
		if i == 0 {
			fmt.Fprintf(out, "\nWithout it\n")
		}
		fmt.Fprintf(out, "  %s of task %s of tenant %s %s\n", count(u.Runs, "run"), printable(string(u.Task), 64), u.Tenant, withoutText(&u))
	}
}

// withoutText says what runs would do without a server.
func withoutText(u *admin.ServerUse) string {
	var said []string
	if len(u.To) > 0 {
		said = append(said, "would move to "+joinIDs(u.To))
	}
	if len(u.Stranded) > 0 {
		said = append(said, "would find no other server for "+printable(strings.Join(u.Stranded, ", "), 400))
	}
	return strings.Join(said, ", and ")
}

// operateServer sends an operator's request about a server, and prints the outcome.
func (s *serverFlags) operateServer(ctx context.Context, io streams, id switchboard.ServerID, what, reason string) error {
	if err := switchboard.CheckID(string(id)); err != nil {
		return usageError{err}
	}
	answer, err := s.asTarget().changeAdmin(ctx, http.MethodPost, "/v1/servers/"+url.PathEscape(string(id))+"/"+what, map[string]string{"reason": reason})
	if err != nil {
		return err
	}
	var done admin.OperationResult
	if err := json.Unmarshal(answer.body, &done); err != nil {
		return err
	}
	if s.JSON {
		return json.NewEncoder(io.raw).Encode(done)
	}
	_, err = fmt.Fprintf(io.out, "%s is %s: %s\n", done.Server, done.State, done.Note)
	return err
}
