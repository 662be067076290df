package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// BenchmarkCall measures a call with arguments of 1 KiB, from the handler on, by the size of its
// result. The server takes no time.
func BenchmarkCall(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		result := switchboard.Result{JSON: []byte(`{"content":[{"type":"text","text":"` + strings.Repeat("x", size) + `"}]}`)}
		d := &desk{tools: []string{"echo"}}
		g := gateway.New(gateway.Options{
			Runs:          run.New(d, nothing, store.NewMemory()),
			Caller:        switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) { return result, nil }),
			Authenticator: parts{&world{}},
			Servers:       parts{},
		})
		post := func(body string, h head) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", both)
			for k, v := range h {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			return w
		}
		args := `"arguments":{"a":"` + strings.Repeat("y", 1<<10) + `"},`
		bodies := map[string]string{}
		heads := map[string]head{}
		bodies["modern"], heads["modern"] = modern("1", "tools/call", `"name":"echo",`+args, "echo")
		bodies["legacy"] = legacyCall("1", "echo", ","+strings.TrimSuffix(args, ","))
		heads["legacy"] = head{"Mcp-Session-Id": post(initialize, nil).Header().Get("Mcp-Session-Id")}
		for _, era := range []string{"legacy", "modern"} {
			b.Run(fmt.Sprintf("%s/%dKiB", era, size>>10), func(b *testing.B) {
				r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", nil)
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", both)
				for k, v := range heads[era] {
					r.Header.Set(k, v)
				}
				r.ContentLength = int64(len(bodies[era]))
				b.ReportAllocs()
				for b.Loop() {
					r.Body = io.NopCloser(strings.NewReader(bodies[era]))
					w := &sink{h: http.Header{}}
					g.ServeHTTP(w, r)
					if w.n < size {
						b.Fatalf("%d bytes, status %d", w.n, w.status)
					}
				}
			})
		}
		g.Close()
	}
}

// A sink is a client that reads everything at once.
type sink struct {
	h         http.Header
	status, n int
}

func (s *sink) SetReadDeadline(time.Time) error  { return nil }
func (s *sink) SetWriteDeadline(time.Time) error { return nil }

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(p []byte) (int, error) { s.n += len(p); return len(p), nil }
