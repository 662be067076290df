package upstream

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// writeText writes a text of n bytes without storing it.
func writeText(w io.Writer, n int) {
	piece := strings.Repeat("x", 32<<10)
	for ; n > 0; n -= len(piece) {
		if _, err := io.WriteString(w, piece[:min(n, len(piece))]); err != nil {
			return
		}
	}
}

func init() {
	fakes["huge"] = func(f *fake) {
		f.serve(func(m *msg) bool {
			if m.Method != "tools/call" || m.Params.Arguments["n"] == nil {
				return false
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			_, _ = fmt.Fprintf(f.out, `{"jsonrpc":"2.0","id":%s,"result":{"text":"`, m.ID)
			writeText(f.out, int(m.Params.Arguments["n"].(float64)))
			_, _ = io.WriteString(f.out, "\"}}\n")
			return true
		})
	}
}

func TestATooLargeAnswerFailsItsCallOnEachTransportAndIsNeverStored(t *testing.T) {
	const (
		limit = 256 << 10
		size  = 20 << 20
		most  = 2 << 30
	)
	head := func(m *msg) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"text":"`, m.ID) }
	answers := func(era link.Era, answer func(w http.ResponseWriter, m *msg, n int)) func(t *testing.T) switchboard.Server {
		return func(t *testing.T) switchboard.Server {
			return newSite(t, era, onCalls(func(w http.ResponseWriter, _ *http.Request, m *msg) {
				if n, ok := m.Params.Arguments["n"].(float64); ok {
					answer(w, m, int(n))
				} else {
					writeResult(w, m, "{}")
				}
			})).server()
		}
	}
	for name, tt := range map[string]struct {
		server func(t *testing.T) switchboard.Server
		how    map[int]string // what the error says about the size, by size
	}{
		"pipes": {func(*testing.T) switchboard.Server { return stdioFake("one", "huge") }, map[int]string{size: "of 209715", most: "bytes or more"}},
		"HTTP, with its length": {answers(link.EraModern, func(w http.ResponseWriter, m *msg, n int) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", fmt.Sprint(len(head(m))+n+3))
			_, _ = io.WriteString(w, head(m))
			writeText(w, n)
			_, _ = io.WriteString(w, `"}}`)
		}), map[int]string{size: "of 209715", most: "of 21474"}},
		"HTTP, in chunks": {answers(link.EraLegacy, func(w http.ResponseWriter, m *msg, n int) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, head(m))
			writeText(w, n)
			_, _ = io.WriteString(w, `"}}`)
		}), map[int]string{size: "", most: ""}},
		"HTTP, as an event": {answers(link.EraModern, func(w http.ResponseWriter, m *msg, n int) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: "+head(m))
			writeText(w, n)
			_, _ = io.WriteString(w, "\"}}\n\n")
		}), map[int]string{size: "", most: ""}},
		"SSE": {func(t *testing.T) switchboard.Server {
			site := newSSESite(t)
			site.special = onSSECalls(func(v *sseStream, w http.ResponseWriter, _ *http.Request, m *msg) {
				w.WriteHeader(http.StatusAccepted)
				n, ok := m.Params.Arguments["n"].(float64)
				if !ok {
					v.result(m, "{}")
					return
				}
				v.mu.Lock()
				defer v.mu.Unlock()
				_, _ = io.WriteString(v.out, "data: "+head(m))
				writeText(v.out, int(n))
				_, _ = io.WriteString(v.out, "\"}}\n\n")
				_ = http.NewResponseController(v.out).Flush()
			})
			return site.server()
		}, map[int]string{size: "of 209715", most: "bytes or more"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tt.server(t)
			s.MaxResult = limit
			f := readyFleet(t, Options{}, s)
			for n, how := range tt.how {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err := f.Call(t.Context(), echoCall("one", fmt.Sprintf(`{"n":%d}`, n)))
				runtime.ReadMemStats(&after)
				e := wantRefusal(t, err, switchboard.CodeResultInvalid)
				for _, want := range []string{how, "262144", "ask for less"} {
					if !strings.Contains(e.Text, want) {
						t.Errorf("the error does not contain %q: %s", want, e.Text)
					}
				}
				checkBlame(t, err, false, true)
				if took := after.TotalAlloc - before.TotalAlloc; took > 20*limit {
					t.Errorf("%d bytes were allocated for an answer of %d, with %d allowed", took, n, limit)
				}
			}
			wait.Until(t, "it serves the next", func() bool {
				_, err := f.Call(t.Context(), echoCall("one", "{}"))
				return err == nil
			})
		})
	}
}

func TestATooLargeAnswerDoesNotAffectOthersOnTheStream(t *testing.T) {
	t.Parallel()
	site := newSSESite(t)
	large := make(chan struct{})
	site.special = onSSECalls(func(v *sseStream, w http.ResponseWriter, _ *http.Request, m *msg) {
		w.WriteHeader(http.StatusAccepted)
		_ = http.NewResponseController(w).Flush()
		if m.Params.Arguments["do"] == "large" {
			v.result(m, `"`+xs+`"`)
			close(large)
			return
		}
		<-large
		v.result(m, "{}")
	})
	f := readyFleet(t, Options{}, site.server())
	other := startAsync(func() error { _, err := f.Call(t.Context(), doCall("wait")); return err })
	wait.Until(t, "it is under way", func() bool { return pendingCount(f, "one") == 1 })
	_, err := f.Call(t.Context(), doCall("large"))
	wantCode(t, err, switchboard.CodeResultInvalid)
	if err := <-other; err != nil {
		t.Error(err)
	}
}
