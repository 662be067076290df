package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin/api"
)

type pageCmd struct {
	serverFlags
	Print bool `help:"Only print the address; open no browser."`
}

// errNoPage says that a Switchboard has no admin address for browsers.
var errNoPage = unreachableError{errors.New("this Switchboard has no admin address that a browser can reach; \"switchboard serve\" has one")}

// Run signs the user in to the page of a running Switchboard, with a browser.
func (p *pageCmd) Run(ctx context.Context, io streams) error {
	t := p.asTarget()
	answer, err := t.askAdmin(ctx, http.MethodPost, "/v1/page-codes", nil)
	if err != nil {
		return err
	}
	var code struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal(answer.body, &code); err != nil {
		return err
	}
	base, err := t.baseURL()
	if err != nil {
		return err
	}
	if t.row != nil { // its URL is that of agents
		if base = t.row.Admin; base == "" {
			return errNoPage
		}
	}
	address := base + code.Path
	if p.JSON {
		return json.NewEncoder(io.raw).Encode(map[string]string{"url": address})
	}
	if !p.Print && openBrowser(ctx, address) == nil {
		_, err = fmt.Fprintf(io.out, "Your browser opens the page. If it does not, open this address; it signs you in once, within a minute:\n\n    %s\n", address)
		return err
	}
	_, err = fmt.Fprintf(io.out, "Open this address in a browser; it signs you in once, within a minute:\n\n    %s\n", address)
	return err
}

// browserTimeout limits how long the system may take to say that it has started a browser.
const browserTimeout = 5 * time.Second

// openBrowser opens an address in the user's browser.
func openBrowser(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, browserTimeout)
	defer cancel()
	var c *exec.Cmd
	switch runtime.GOOS {
	case "darwin":
		c = exec.CommandContext(ctx, "open", address)
	case "windows":
		c = exec.CommandContext(ctx, "rundll32", "url.dll,FileProtocolHandler", address)
	default:
		c = exec.CommandContext(ctx, "xdg-open", address)
	}
	return c.Run()
}

type sessionsCmd struct {
	List sessionsListCmd `cmd:"" help:"List who is signed in to the page, since when and how."`
	End  sessionsEndCmd  `cmd:"" help:"End a session, at every replica: that browser is signed out."`
}

type sessionsListCmd struct{ serverFlags }

// Run prints the sessions of a running Switchboard.
func (s *sessionsListCmd) Run(ctx context.Context, io streams) error {
	rows, err := fetchList[api.SessionRow](ctx, s.asTarget(), "/v1/sessions", "sessions", url.Values{})
	if err != nil {
		return err
	}
	if s.JSON {
		return json.NewEncoder(io.raw).Encode(rows)
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SESSION\tOFFICER\tBY\tSINCE\tLAST USED\tENDS\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s ago\tin %s\t\n", r.ID, printable(r.Officer, 80), r.By, r.Began.Local().Format(time.DateTime), sinceText(r.Used), time.Until(r.Ends).Round(time.Minute))
	}
	return w.Flush()
}

type sessionsEndCmd struct {
	serverFlags
	Session string `arg:"" help:"The id of the session, as \"sessions list\" shows it."`
}

// Run ends a session at a running Switchboard.
func (s *sessionsEndCmd) Run(ctx context.Context, io streams) error {
	if _, err := s.asTarget().changeAdmin(ctx, http.MethodDelete, "/v1/sessions/"+url.PathEscape(s.Session), nil); err != nil {
		return err
	}
	_, err := fmt.Fprintf(io.out, "session %s has ended\n", printable(s.Session, 64))
	return err
}
