// Package sample holds small MCP servers, so that Switchboard can be tried and tested without any
// installation or network: two web searches over a built-in corpus, a reader of source code, a
// notifier, and a cloud that exists only in memory.
//
// They are ordinary servers, written with mcp-go, and know nothing about Switchboard. Each publishes
// the capabilities of its tools as x-summit-capabilities. They do so in all positions where a server
// may: on the tool with and without a prefix, and in the handshake under experimental and extensions.
//
// Their data is in memory, and is lost when they end. All sizes are limited. They have no
// authentication, and therefore serve HTTP only on loopback addresses.
package sample

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/server"
)

// Version is the version that every sample reports.
const Version = "1.0.0"

// MaxMessage limits the size of one message to a sample, in bytes.
const MaxMessage = 1 << 20

// stopTimeout limits how long requests in flight may take after a sample is told to stop.
const stopTimeout = 3 * time.Second

// builders create the samples, by name. cleanup is never nil if err is nil.
var builders = map[string]func(Options) (b *sampleServer, cleanup func(), err error){
	"atlas-search":  newAtlas,
	"aws-like":      newAWS,
	"code-reader":   newCodeReader,
	"nimbus-search": newNimbus,
	"notifier":      newNotifier,
}

// Names returns the names of the samples, sorted.
func Names() []string {
	names := make([]string, 0, len(builders))
	for name := range builders {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Options say how a sample is served.
type Options struct {
	// Root is the folder of code-reader; the other samples ignore it. "" means the working directory.
	Root string

	// HTTP is a loopback host and port to serve Streamable HTTP on, at /mcp. Port 0 selects a free
	// port. "" means stdio.
	HTTP string

	// Reworded makes nimbus-search describe a tool in other words. The other samples ignore it.
	Reworded bool

	// Stdin and Stdout carry the messages of stdio. Over HTTP the first line on Stdout is the URL.
	// Stdin may be nil over HTTP; Stdout may never be nil.
	Stdin  io.Reader
	Stdout io.Writer

	// Stderr receives the log output; nil discards it.
	Stderr io.Writer
}

// Serve runs the sample called name until ctx is cancelled or its standard input ends; both are
// regular ends. One process serves at most one sample over stdio, because mcp-go has one stdio session
// per process.
func Serve(ctx context.Context, name string, o Options) error {
	build, ok := builders[name]
	if !ok {
		return fmt.Errorf("no sample is called %q; there are %s", name, strings.Join(Names(), ", "))
	}
	b, cleanup, err := build(o)
	if err != nil {
		return fmt.Errorf("sample %s: %w", name, err)
	}
	defer cleanup()
	if o.Stderr == nil {
		o.Stderr = io.Discard
	}
	if o.HTTP != "" {
		err = serveHTTP(ctx, b.newServer(), o)
	} else {
		err = serveStdio(ctx, b.newServer(), o)
	}
	if err != nil {
		return fmt.Errorf("sample %s: %w", name, err)
	}
	return nil
}

func serveStdio(ctx context.Context, s *server.MCPServer, o Options) error {
	std := server.NewStdioServer(s)
	std.SetErrorLogger(log.New(o.Stderr, "", 0))
	err := std.Listen(ctx, &lineGuard{in: o.Stdin, max: MaxMessage}, o.Stdout)
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

// serveHTTP serves both eras at /mcp. It accepts only session ids that it has issued.
func serveHTTP(ctx context.Context, s *server.MCPServer, o Options) error {
	if err := checkLoopback(o.HTTP); err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", o.HTTP)
	if err != nil {
		return err
	}
	streamable := server.NewStreamableHTTPServer(s, server.WithStateful(true),
		server.WithStreamableHTTPLogger(slog.New(slog.NewTextHandler(o.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	mux := http.NewServeMux()
	mux.Handle("/mcp", http.NewCrossOriginProtection().Handler(http.MaxBytesHandler(streamable, MaxMessage)))
	h := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    1 << 16,
		ErrorLog:          log.New(o.Stderr, "", 0),
	}
	if _, err := fmt.Fprintf(o.Stdout, "http://%s/mcp\n", l.Addr()); err != nil {
		return errors.Join(err, l.Close())
	}

	ended := make(chan error, 1)
	go func() { ended <- h.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	streamable.CloseSessions(stopCtx)
	if err := h.Shutdown(stopCtx); err != nil {
		// A client has a stream open, which it may.
		if err := h.Close(); err != nil {
			return err
		}
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// checkLoopback returns an error if a server without authentication must not listen at addr.
func checkLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("address %q: want host:port, such as 127.0.0.1:0", addr)
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		return fmt.Errorf("address %q: a sample has no authentication; use a loopback address, such as 127.0.0.1:0", addr)
	}
	return nil
}

// A lineGuard ends the input at a line longer than max bytes: mcp-go would buffer the line without
// limit.
type lineGuard struct {
	in  io.Reader
	max int
	len int // of the line so far
}

var errLongLine = fmt.Errorf("a message is longer than %d bytes", MaxMessage)

// Read implements io.Reader.
func (g *lineGuard) Read(p []byte) (int, error) {
	n, err := g.in.Read(p)
	for _, c := range p[:n] {
		g.len++
		if c == '\n' {
			g.len = 0
		}
		if g.len > g.max {
			return 0, errLongLine
		}
	}
	return n, err
}
