package app

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"

	"github.com/summit-switchboard/switchboard/internal/certfile"
	"github.com/summit-switchboard/switchboard/internal/config"
)

// withTLS returns l with TLS if there is a certificate, else l itself. Each handshake has the certificate that its files hold then, so
// that it can be renewed while connections are open.
func withTLS(l net.Listener, files config.CertificateFiles, log *slog.Logger) net.Listener {
	if files.Cert == "" {
		return l
	}
	pair := certfile.NewPair(files.Cert, files.Key, func(err error) {
		log.Error("the certificate of a listener cannot be used", "address", l.Addr().String(), "err", err)
	})
	return &secureListener{l, &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Certificate() },
	}}
}

// A secureListener accepts connections with TLS. The handshake is part of the first Read, with its deadline.
type secureListener struct {
	net.Listener
	settings *tls.Config
}

// Accept implements net.Listener.
func (l *secureListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &secureConn{tls.Server(c, l.settings)}, nil
}

// A secureConn is a connection with TLS.
type secureConn struct{ *tls.Conn }

// plainAnswer is for clients that speak HTTP without TLS.
const plainAnswer = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nThis address speaks TLS only: write https:// into the URL.\n"

// Read implements net.Conn.
func (c *secureConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if header, ok := errors.AsType[tls.RecordHeaderError](err); ok && header.Conn != nil && isPlainHTTP(header.RecordHeader) {
		_, _ = io.WriteString(header.Conn, plainAnswer)
	}
	return n, err
}

// isPlainHTTP reports whether the first bytes of a client are those of a request.
func isPlainHTTP(head [5]byte) bool {
	switch string(head[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET":
		return true
	}
	return false
}

type secureKey struct{}

// withSecure stores in the context of requests whether their connection c has TLS.
func withSecure(ctx context.Context, c net.Conn) context.Context {
	for {
		if s, ok := c.(*secureConn); ok {
			return context.WithValue(ctx, secureKey{}, s)
		}
		below, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return ctx
		}
		c = below.NetConn()
	}
}

// showTLS sets Request.TLS, which net/http does only for connections of its own.
func showTLS(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s, ok := r.Context().Value(secureKey{}).(*secureConn); ok {
			state := s.ConnectionState()
			r.TLS = &state
		}
		h.ServeHTTP(w, r)
	})
}

// ownFiles returns Switchboard's own files and folders. first is the configuration before the first state.
func ownFiles(a *App, first *config.Config) []string {
	if s := a.state.Load(); s != nil {
		first = s.config
	}
	all := first.OwnFiles()
	for _, path := range []string{a.options.Officers.Row, a.options.Data} {
		if abs, err := filepath.Abs(path); path != "" && err == nil {
			all = append(all, abs)
		}
	}
	return all
}
