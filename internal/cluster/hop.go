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

	// Of the client's headers each stands under this prefix on its hop, so that none
	// has a meaning to what carries it: net/http, say, sends a request again that
	// has an Idempotency-Key.
	prefix = "Hop-"

	headerPrincipal = "Switchboard-Principal"
	headerTo        = "Switchboard-To"
	headerHost      = "Switchboard-Host"
	headerNotHere   = "Switchboard-Not-Here"

	chunk        = 32 << 10
	writeTimeout = 30 * time.Second // for a client to take a chunk
)

// The errors of Forward.
var (
	// ErrGone says that the replica is not there, or does not hold what the request
	// goes on with: nothing has been done.
	ErrGone = errors.New("the replica is not there")

	// ErrBroken says that the connection broke before there was an answer: nobody
	// knows what was done.
	ErrBroken = errors.New("the connection to the replica broke")
)

// How a hop can end.
const (
	HopAnswered    = "answered"
	HopGone        = "gone"        // nothing was done: the replica is not there, or does not hold what the request goes on with
	HopBroken      = "broken"      // nobody knows what was done
	HopCut         = "cut"         // the client left, or the answer ended too soon
	HopUnavailable = "unavailable" // where the replica is, the store did not tell
)

// derive makes a key of the secret for one purpose.
func derive(secret switchboard.Secret, purpose string, size int) ([]byte, error) {
	return hkdf.Key(sha256.New, []byte(secret.Reveal()), nil, "switchboard: "+purpose, size)
}

// mutual is TLS by which both ends know that the other one has the secret: the key of
// their certificates follows from it, and no other key will do.
func mutual(secret switchboard.Secret) (*tls.Config, error) {
	if len(secret.Reveal()) < 16 {
		return nil, errors.New("the secret of the cluster is shorter than 16 bytes")
	}
	seed, err := derive(secret, "connections of replicas", ed25519.SeedSize)
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
		InsecureSkipVerify: true, //nolint:gosec // no authority and no name, but the very key, below
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

// Forward has the replica of that id answer r, which p has sent with that body, and
// writes its answer to w. Where the error is ErrGone or ErrBroken, nothing has been
// written; where the answer ends too soon, Forward panics with http.ErrAbortHandler, so that
// the client sees it.
func (c *Cluster) Forward(w http.ResponseWriter, r *http.Request, body []byte, p switchboard.Principal, id string) error {
	if c.self == "" {
		return ErrGone
	}
	outcome := HopGone
	defer func() { c.o.Hopped(outcome) }()
	address, err := c.find(r.Context(), id)
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
	defer c.begin(&hop{to: id, end: end})()
	to := url.URL{Scheme: "https", Host: address, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	out, err := http.NewRequestWithContext(ctx, r.Method, to.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	if body == nil {
		out.Body, out.ContentLength = http.NoBody, 0
	}
	for name, values := range r.Header {
		if name != "Authorization" { // it says who is calling, and that is settled
			out.Header[prefix+name] = values
		}
	}
	out.Header["User-Agent"] = nil
	out.Header.Set(headerPrincipal, string(who))
	out.Header.Set(headerTo, id)
	out.Header.Set(headerHost, r.Host)
	var sent atomic.Bool // whoever writes may be at it still when the connection has ended
	res, err := c.dial.RoundTrip(out.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { sent.Store(false) }, // it is tried again: it was not written to the one before
		WroteHeaders: func() { sent.Store(true) },
	})))
	switch {
	case err == nil:
	case r.Context().Err() != nil:
		outcome = HopCut
		panic(http.ErrAbortHandler) // nobody waits for an answer
	case sent.Load():
		outcome = HopBroken
		c.forget(id)
		return fmt.Errorf("replica %s: %w: %w", id, ErrBroken, cmp.Or(context.Cause(ctx), err))
	default:
		c.forget(id)
		return fmt.Errorf("replica %s: %w: %w", id, ErrGone, err)
	}
	defer res.Body.Close() //nolint:errcheck // it was only read from
	if res.StatusCode == http.StatusMisdirectedRequest && res.Header.Get(headerNotHere) != "" {
		c.forget(id)
		return ErrGone
	}
	outcome = HopCut
	copyAnswer(w, res)
	outcome = HopAnswered
	return nil
}

// copyAnswer writes an answer as it comes. A client that takes nothing of it is let go of.
func copyAnswer(w http.ResponseWriter, res *http.Response) {
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
	for buf := make([]byte, chunk); ; {
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

// hopKey is under which a request's context says that it came over a hop.
type hopKey struct{}

// Principal is who has sent r, where another replica has found that out.
func Principal(r *http.Request) (switchboard.Principal, bool) {
	p, ok := r.Context().Value(hopKey{}).(switchboard.Principal)
	return p, ok
}

// NotHere answers a request that came over a hop, and goes on with what this replica
// does not hold.
func NotHere(w http.ResponseWriter) {
	w.Header().Set(headerNotHere, "true")
	w.WriteHeader(http.StatusMisdirectedRequest)
}

// Serve has h answer what other replicas forward. Call it once.
func (c *Cluster) Serve(h http.Handler) {
	if c.self != "" {
		c.handler.Store(&h)
	}
}

// arrived answers a hop.
func (c *Cluster) arrived(w http.ResponseWriter, r *http.Request) {
	h := c.handler.Load()
	if h == nil || r.Header.Get(headerTo) != c.self {
		NotHere(w) // its address was another's before
		return
	}
	var p switchboard.Principal
	if err := json.Unmarshal([]byte(r.Header.Get(headerPrincipal)), &p); err != nil {
		http.Error(w, "a hop without a principal", http.StatusBadRequest)
		return
	}
	in := r.Clone(context.WithValue(r.Context(), hopKey{}, p))
	in.Host = r.Header.Get(headerHost)
	in.Header = http.Header{}
	for name, values := range r.Header {
		if own, ok := strings.CutPrefix(name, prefix); ok {
			in.Header[own] = values
		}
	}
	(*h).ServeHTTP(w, in)
}

// listen answers at l.
func (c *Cluster) listen(l net.Listener) {
	c.server.Handler = http.HandlerFunc(c.arrived)
	go func() {
		defer close(c.served)
		_ = c.server.ServeTLS(l, "", "") // until Close
	}()
}
