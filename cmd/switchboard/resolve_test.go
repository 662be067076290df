package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// A probe at each poll would probe again and again while a server starts.
func TestResolveProbesOnceAfterTheServersHaveStarted(t *testing.T) {
	var probes []string
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		probes = append(probes, r.URL.Query().Get("probe"))
		starting := `["one"]`
		if len(probes) > 1 {
			starting = `[]`
		}
		fmt.Fprintf(w, `{"verdicts":[{"capability":"a.b@1.0.0","verdict":"yes"}],"starting":%s}`, starting)
	}))
	defer admin.Close()
	t.Setenv(keyVariable, "swo_x")
	var out, said strings.Builder
	code := run(t.Context(), []string{"resolve", "a.b", "--probe", "--url", admin.URL}, streams{in: strings.NewReader(""), out: &out, err: &said, raw: io.Discard})
	if code != 0 || out.String() != "a.b@1.0.0  yes\n" || !slices.Equal(probes, []string{"false", "false", "true"}) {
		t.Errorf("exit %d, asked with probe %q\n%s%s", code, probes, out.String(), said.String())
	}
}
