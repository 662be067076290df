package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
)

// copySize is the size of the buffers that answers are copied through. It is the size that ReverseProxy allocates for each answer if it has no pool.
const copySize = 32 << 10

// maxRequest is the longest request that the proxies of the benchmark read.
const maxRequest = 8 << 20

// A bufferPool keeps the buffers of a ReverseProxy. Its items are pointers to arrays, so that Put does not allocate.
type bufferPool struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[copySize]byte); ok {
		return b[:]
	}
	return make([]byte, copySize)
}

// Put implements httputil.BufferPool.
func (p *bufferPool) Put(b []byte) { p.pool.Put((*[copySize]byte)(b)) }

// runProxy runs a reverse proxy of the standard library: P, or with -untuned the proxy as it comes.
func runProxy(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("proxy", flag.ContinueOnError)
	asItComes := f.Bool("untuned", false, "only let it keep idle connections")
	if err := f.Parse(args); err != nil {
		return err
	}
	to, err := url.Parse(f.Arg(0))
	if err != nil {
		return err
	}
	to.Path = ""
	if *asItComes {
		return listen(ctx, "127.0.0.1:0", untunedProxy(to))
	}
	return listen(ctx, "127.0.0.1:0", tunedProxy(to))
}

// untunedProxy is the proxy as it comes. Its one setting is the number of idle connections: with the default it would dial for most calls.
func untunedProxy(to *url.URL) *httputil.ReverseProxy {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 1000
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: transport,
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
}

// tunedProxy is P, the baseline of all ratios: the proxy as its makers would set it up for this work. It takes its buffers from a pool, keeps its idle
// connections, neither asks for compression nor looks for a proxy in the environment, reads each request whole before it forwards it, and sends it in one write.
// If it forwarded a request before it had read it, the transport could still be reading the request when the answer comes, and would then cut the answer (golang/go#40747).
func tunedProxy(to *url.URL) http.Handler {
	p := untunedProxy(to)
	transport := p.Transport.(*http.Transport)
	transport.DisableCompression = true
	transport.Proxy = nil
	p.BufferPool = &bufferPool{}
	p.Rewrite = func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Body = r.In.Body // without the proxy's guard against a late read, which a body in memory does not need: the transport writes such a body together with the headers
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := readWhole(w, r)
		if err != nil {
			refuseRequest(w, err)
			return
		}
		if len(body) == 0 {
			r.Body, r.ContentLength = http.NoBody, 0
		} else {
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
		r.TransferEncoding = nil
		p.ServeHTTP(w, r)
	})
}

// readWhole reads the body of a request, maxRequest bytes at most.
func readWhole(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	switch n := r.ContentLength; {
	case n == 0:
		return nil, nil
	case n > maxRequest:
		return nil, &http.MaxBytesError{Limit: maxRequest}
	case n > 0:
		body := make([]byte, n)
		_, err := io.ReadFull(r.Body, body)
		return body, err
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
}

// refuseRequest answers a request that readWhole could not read.
func refuseRequest(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		status = http.StatusRequestEntityTooLarge
	}
	http.Error(w, err.Error(), status)
}
