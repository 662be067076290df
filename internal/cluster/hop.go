package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	dialTimeout = 2 * time.Second

	// The client's headers have this prefix on a hop, so that they mean nothing to the code that carries the
	// hop: net/http, for example, sends a request again if it has an Idempotency-Key.
	hopPrefix = "Hop-"

	headerPrincipal = "Switchboard-Principal"
	headerTo        = "Switchboard-To"
	headerHost      = "Switchboard-Host"
	headerNotHere   = "Switchboard-Not-Here"

	chunkBytes   = 32 << 10
	writeTimeout = 30 * time.Second // for one write to the client
)

// The errors of Forward.
var (
	// ErrGone says that the replica is not alive, or does not own what the request needs. Nothing was
	// done.
	ErrGone = errors.New("the replica is gone")

	// ErrBroken says that the connection broke before a response came: the request may have been executed.
	ErrBroken = errors.New("the connection to the replica broke")
)

// The outcomes of a hop.
const (
	HopAnswered    = "answered"
	HopGone        = "gone"        // nothing was done: the replica is gone, or does not own what the request needs
	HopBroken      = "broken"      // the request may have been executed
	HopCut         = "cut"         // the client disconnected, or the response ended too soon
	HopUnavailable = "unavailable" // the store could not be asked for the replica's address
)

// deriveKey derives a key from the secret for one purpose.
func deriveKey(secret switchboard.Secret, purpose string, size int) ([]byte, error) {
	return hkdf.Key(sha256.New, []byte(secret.Reveal()), nil, "switchboard: "+purpose, size)
}

// mutualTLS returns a TLS configuration for connections between replicas. The key of their certificates is
// derived from the secret, and each end accepts no other key: so both prove that they have the secret.
func mutualTLS(secret switchboard.Secret) (*tls.Config, error) {
	if len(secret.Reveal()) < 16 {
		return nil, errors.New("the secret of the cluster is shorter than 16 bytes")
	}
	seed, err := deriveKey(secret, "connections of replicas", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	now := time.Now()
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(10, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection compares the key itself; there is no authority and no name
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 1 {
				theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
				if ok && subtle.ConstantTimeCompare(theirs, key.Public().(ed25519.PublicKey)) == 1 {
					return nil
				}
			}
			return errors.New("the other end does not know the secret of the cluster")
		},
	}, nil
}

// Forward sends r, with the body and the principal p, to the replica with the id, and writes its response to
// w. If the error is ErrGone or ErrBroken, nothing has been written to w. If the response ends too soon,
// Forward panics with http.ErrAbortHandler: the client then sees a broken connection.
func (c *Cluster) Forward(w http.ResponseWriter, r *http.Request, body []byte, p switchboard.Principal, id string) error {
	if c.self == "" {
		return ErrGone
	}
	outcome := HopGone
	defer func() { c.options.Hopped(outcome) }()
	address, err := c.findAddress(r.Context(), id)
	if err != nil {
		outcome = HopUnavailable
		return err
	}
	if address == "" {
		return ErrGone
	}
	who, err := json.Marshal(p)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	defer c.trackHop(&hop{to: id, cancel: end})()
	to := url.URL{Scheme: "https", Host: address, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	out, err := http.NewRequestWithContext(ctx, r.Method, to.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	if body == nil {
		out.Body, out.ContentLength = http.NoBody, 0
	}
	for name, values := range r.Header {
		if name != "Authorization" { // the principal was authenticated here
			out.Header[hopPrefix+name] = values
		}
	}
	out.Header["User-Agent"] = nil
	out.Header.Set(headerPrincipal, string(who))
	out.Header.Set(headerTo, id)
	out.Header.Set(headerHost, r.Host)
	var sent atomic.Bool // atomic: the transport may still be writing when RoundTrip returns
	res, err := c.transport.RoundTrip(out.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { sent.Store(false) }, // a retry on a new connection: nothing was written to the one before
		WroteHeaders: func() { sent.Store(true) },
	})))
	switch {
	case err == nil:
	case r.Context().Err() != nil:
		outcome = HopCut
		panic(http.ErrAbortHandler) // the client is gone
	case sent.Load():
		outcome = HopBroken
		c.forgetAddress(id)
		return fmt.Errorf("replica %s: %w: %w", id, ErrBroken, cmp.Or(context.Cause(ctx), err))
	default:
		c.forgetAddress(id)
		return fmt.Errorf("replica %s: %w: %w", id, ErrGone, err)
	}
	defer res.Body.Close() //nolint:errcheck // it was only read from
	if res.StatusCode == http.StatusMisdirectedRequest && res.Header.Get(headerNotHere) != "" {
		c.forgetAddress(id)
		return ErrGone
	}
	outcome = HopCut
	copyResponse(w, res)
	outcome = HopAnswered
	return nil
}

// copyResponse writes a response as it arrives. It gives up if the client does not read.
func copyResponse(w http.ResponseWriter, res *http.Response) {
	for name, values := range res.Header {
		if name != "Date" && name != "Connection" { // these are of one connection
			w.Header()[name] = values
		}
	}
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	w.WriteHeader(res.StatusCode)
	streams := strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream")
	if streams && c.Flush() != nil {
		panic(http.ErrAbortHandler)
	}
	for buf := make([]byte, chunkBytes); ; {
		n, err := res.Body.Read(buf)
		if n > 0 {
			_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := w.Write(buf[:n]); err != nil {
				panic(http.ErrAbortHandler)
			}
			if streams && c.Flush() != nil {
				panic(http.ErrAbortHandler)
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// hopPrincipalKey is the context key of the principal of a request that came over a hop.
type hopPrincipalKey struct{}

// Principal returns the principal of r if r came over a hop: the replica that forwarded it has authenticated
// it.
func Principal(r *http.Request) (switchboard.Principal, bool) {
	p, ok := r.Context().Value(hopPrincipalKey{}).(switchboard.Principal)
	return p, ok
}

// AnswerNotOwner answers a request that came over a hop and needs something that this replica does not own.
func AnswerNotOwner(w http.ResponseWriter) {
	w.Header().Set(headerNotHere, "true")
	w.WriteHeader(http.StatusMisdirectedRequest)
}

// Serve sets the handler of the requests that other replicas forward. Call it once.
func (c *Cluster) Serve(h http.Handler) {
	if c.self != "" {
		c.handler.Store(&h)
	}
}

// serveHop serves one forwarded request.
func (c *Cluster) serveHop(w http.ResponseWriter, r *http.Request) {
	h := c.handler.Load()
	if h == nil || r.Header.Get(headerTo) != c.self {
		AnswerNotOwner(w) // it was meant for a replica that had this address before
		return
	}
	var p switchboard.Principal
	if err := json.Unmarshal([]byte(r.Header.Get(headerPrincipal)), &p); err != nil {
		http.Error(w, "a hop without a principal", http.StatusBadRequest)
		return
	}
	in := r.Clone(context.WithValue(r.Context(), hopPrincipalKey{}, p))
	in.Host = r.Header.Get(headerHost)
	in.Header = http.Header{}
	for name, values := range r.Header {
		if own, ok := strings.CutPrefix(name, hopPrefix); ok {
			in.Header[own] = values
		}
	}
	(*h).ServeHTTP(w, in)
}

// startListener serves hops on l until Close.
func (c *Cluster) startListener(l net.Listener) {
	c.server.Handler = http.HandlerFunc(c.serveHop)
	go func() {
		defer close(c.listenerDone)
		_ = c.server.ServeTLS(l, "", "") // it returns when Close is called
	}()
}
