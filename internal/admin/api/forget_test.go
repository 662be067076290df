package api

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

// The schemas of answers are not kept, and the document that is served has them all the same. Requests are checked as before, also by schemas within schemas.
func TestSchemasOfAnswersAreNotKept(t *testing.T) {
	inUse := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := inUse()
	a := New(Options{Version: "1"})
	a.routes()
	grown := inUse() - before
	t.Logf("the routes take %d KiB", grown>>10)
	if grown > 1400<<10 {
		t.Errorf("the routes take %d bytes", grown)
	}
	all := a.huma.OpenAPI().Components.Schemas.Map()
	if all["PinsPinDetail"] != nil || len(all) == 0 {
		t.Errorf("%d schemas are kept", len(all))
	}
	for name, s := range all {
		for member, p := range s.Properties {
			if p.Items != nil {
				p = p.Items
			}
			if p.Ref != "" && a.huma.OpenAPI().Components.Schemas.SchemaFromRef(p.Ref) == nil {
				t.Errorf("%s: the schema of %s, %s, is gone", name, member, p.Ref)
			}
		}
	}
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/openapi.json", nil))
	want, err := Document("1")
	if err != nil || !bytes.Equal(w.Body.Bytes(), want) || !strings.Contains(string(want), `"PinsPinDetail":`) {
		t.Errorf("the document that is served has %d bytes, want %d: %v", w.Body.Len(), len(want), err)
	}
	runtime.KeepAlive(a)
}
