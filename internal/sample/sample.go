// Package sample holds small MCP servers of our own, so that Switchboard can be
// tried and tested with nothing installed and no network: two web searches
// over a corpus that is part of the program, a reader of source code, a
// notifier, and a cloud that exists in memory only.
//
// They are ordinary servers, written with mcp-go, and know nothing of
// Switchboard. Each says by x-summit-capabilities what its tools do, and they
// say it in the different places where a server may: on the tool, with and
// without a prefix, and in the handshake under experimental and extensions.
//
// What they keep they keep in memory, and they forget it when they end. All
// sizes are bounded. They have no authentication, so over HTTP they listen on
// loopback only.
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

// Version is what every sample says of its version.
const Version = "1.0.0"

// MaxMessage bounds one message to a sample, in bytes.
const MaxMessage = 1 << 20

// stopTime is how long requests in flight may take when a sample is told to
// end.
const stopTime = 3 * time.Second

// builders make the samples, by name. The cleanup is never nil when err is.
var builders = map[string]func(Options) (b *bench, cleanup func(), err error){
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
	// Root is the folder that code-reader reads below; the others ignore it.
	// "" means the working directory.
	Root string

	// HTTP is a loopback host and port to serve Streamable HTTP on, at /mcp;
	// port 0 takes a free one. "" means stdio.
	HTTP string

	// Stdin and Stdout carry the messages of stdio. Over HTTP the first line
	// on Stdout is the URL. Neither may be nil, but Stdin over HTTP.
	Stdin  io.Reader
	Stdout io.Writer

	// Stderr takes the log; nil means nowhere.
	Stderr io.Writer
}

// Serve runs the sample called name until ctx is cancelled, or its standard
// input ends; both are a regular end. One process serves at most one sample
// over stdio, because mcp-go has one stdio session per process.
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
		err = serveHTTP(ctx, b.server(), o)
	} else {
		err = serveStdio(ctx, b.server(), o)
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

// serveHTTP serves both eras at /mcp. Sessions of the legacy era are issued
// here, never adopted.
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
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	streamable.CloseSessions(stopCtx)
	if err := h.Shutdown(stopCtx); err != nil {
		// A client holds a stream open, which is its right.
		if err := h.Close(); err != nil {
			return err
		}
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// checkLoopback reports why addr is no place for a server without
// authentication.
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

// A lineGuard ends the input where a line is longer than max bytes: mcp-go
// would gather it without bound.
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
