package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"

	"github.com/summit-switchboard/switchboard/internal/admin/page"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/connlimit"
	"github.com/summit-switchboard/switchboard/internal/signin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An adminListener serves the admin API at its own address. A nil adminListener serves nothing.
type adminListener struct {
	net.Listener
	server *http.Server
	done   chan struct{} // closed when it serves no more
}

// listenForOfficers opens the admin address. If the default address is taken, it takes a free port of loopback: several
// Switchboards on one machine are usual, and commands find each of them by its row in the data folder.
func listenForOfficers(c *config.Config) (*adminListener, error) {
	address := c.Admin.Listen
	if address == "" {
		address = config.DefaultAdminListen
	}
	l, err := net.Listen("tcp", address)
	if err != nil && c.Admin.Listen == "" && errors.Is(err, syscall.EADDRINUSE) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: another program listens at %s, the address of admin.listen; choose another one, or leave admin.listen out: then a free port is taken", switchboard.CodeConfig, address)
	case err != nil:
		return nil, fmt.Errorf("%s: admin.listen %q: %w", switchboard.CodeConfig, address, err)
	}
	return &adminListener{Listener: l}, nil
}

// serve starts to serve.
func (l *adminListener) serve(s *http.Server, log *slog.Logger) {
	if l == nil {
		return
	}
	// Streams end when the server begins to stop, so that it does not wait for them.
	ctx, cancel := context.WithCancel(context.Background())
	s.BaseContext = func(net.Listener) context.Context { return ctx }
	s.RegisterOnShutdown(cancel)
	// Browsers open connections before they need them. Shutdown would wait 5 seconds for each that has sent nothing.
	var unused sync.Map
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			unused.Store(c, nil)
		} else {
			unused.Delete(c)
		}
	}
	s.RegisterOnShutdown(func() {
		unused.Range(func(c, _ any) bool {
			_ = c.(net.Conn).Close()
			return true
		})
	})
	l.server, l.done = s, make(chan struct{})
	go func() {
		defer close(l.done)
		if err := s.Serve(connlimit.New(l.Listener)); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the admin address is not served any more", "err", err)
		}
	}()
}

// stop waits for the requests in flight, until ctx is done.
func (l *adminListener) stop(ctx context.Context) {
	if l == nil || l.server == nil {
		return
	}
	if err := l.server.Shutdown(ctx); err != nil {
		_ = l.server.Close()
	}
	<-l.done
}

func (l *adminListener) close() {
	if l != nil {
		_ = l.Close()
	}
}

// authenticateOfficer returns who has sent a request to the admin API.
func (f front) authenticateOfficer(r *http.Request) (switchboard.Officer, error) {
	var o switchboard.Officer
	var err error
	switch {
	case len(r.Header.Values("Authorization")) > 0 || !f.a.admin.page.HasSession(r):
		o, err = f.a.state.Load().Officers.Authenticate(r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead && len(r.Header.Values("Origin")) != 1:
		err = switchboard.Refuse(switchboard.CodeNotAuthorized, "with a session, a request that changes something must say which page it comes from (Origin)")
	default:
		o, err = f.a.admin.page.Officer(r)
	}
	if err == nil {
		connlimit.MarkKnown(r.Context())
	}
	return o, err
}

// signInIssuers returns the issuers with a registration for sign-in.
func signInIssuers(c *config.Config) (all []signin.Registration) {
	for _, is := range c.Issuers {
		if s := is.SignIn; s != nil {
			all = append(all, signin.Registration{ID: is.ID, URL: is.URL, ClientID: s.ClientID, Secret: s.Secret, Scopes: s.Scopes})
		}
	}
	return all
}

// clientDocument returns the URL at which providers read who we are; "" if they cannot.
func (l live) clientDocument() string {
	if a := &l.state.Load().config.Admin; a.ClientDocument {
		return a.URL + page.DocumentPath
	}
	return ""
}

// adminURL returns how browsers reach the admin address; "" if only this machine does.
func (l live) adminURL() string { return l.state.Load().config.Admin.URL }
