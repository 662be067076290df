package api

import (
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// exportTo writes an export of the lines as the operator ops gets it. broken says that the connection was ended.
func exportTo(t *testing.T, a *API, lines iter.Seq2[[]byte, error]) (w *httptest.ResponseRecorder, broken bool) {
	t.Helper()
	w = httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/v1/receipts/export", nil)
	defer func() {
		if p := recover(); p != nil {
			broken = true
			if p != http.ErrAbortHandler { //nolint:errorlint // net/http compares it so too
				t.Errorf("it panics with %v", p)
			}
		}
	}()
	receiptRoutes{a}.writeExport(humago.NewContext(&huma.Operation{}, r, w), asked{officer: &switchboard.Officer{ID: "ops", Operator: true}}, lines)
	return w, false
}

// A reader never takes a part of an export for all of it, and gets no more once its key is gone.
func TestAnExportThatEndsEarlyBreaksOff(t *testing.T) {
	kilobyte := []byte(strings.Repeat("x", 1023) + "\n")
	away := switchboard.Unavailable("the receipts cannot be read", nil)
	for _, tt := range []struct {
		name        string
		lines       int
		end         error // behind the lines
		revoked     int   // after so many lines
		broken      bool
		status      int
		least, most int // bytes
	}{
		{"whole", 300, nil, -1, false, 200, 300 << 10, 300 << 10},
		{"nothing", 0, nil, -1, false, 200, 0, 0},
		{"the store is away", 0, away, -1, false, 503, 1, 1 << 10},
		{"the store is away soon", 3, away, -1, false, 503, 1, 1 << 10},
		{"the store is away in the middle", 200, away, -1, true, 200, 64 << 10, 200 << 10},
		{"the key is revoked before the first part", 3, nil, 1, true, 200, 0, 0},
		{"the key is revoked in the middle", 300, nil, 100, true, 200, 64 << 10, 128 << 10},
	} {
		a := newDoor("")
		written := 0
		a.o.Authenticate = func(*http.Request) (switchboard.Officer, error) {
			if tt.revoked >= 0 && written >= tt.revoked {
				return switchboard.Officer{}, switchboard.Refuse(switchboard.CodeNotAuthenticated, "revoked")
			}
			return switchboard.Officer{ID: "ops", Operator: true}, nil
		}
		w, broken := exportTo(t, a, func(yield func([]byte, error) bool) {
			for written = range tt.lines {
				if !yield(kilobyte, nil) {
					return
				}
			}
			if tt.end != nil {
				yield(nil, tt.end)
			}
		})
		if broken != tt.broken || w.Code != tt.status || w.Body.Len() < tt.least || w.Body.Len() > tt.most {
			t.Errorf("%s: broken off %v, %d, %d bytes", tt.name, broken, w.Code, w.Body.Len())
		}
	}
}
