package main

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/openapi"
)

// knownValues are values for all parameters that a route needs today.
var knownValues = map[string]string{
	"tenant": "acme", "wide": "all", "server": "web", "tool": "find", "change": "1", "diff": "d", "node": "n1", "entry": "7", "id": "n1/7", "query": "find a tool", "path": "switchboard.yaml",
	"since": "2026-11-27T08:00:00Z", "until": "2026-11-27T08:00:01Z",
}

func TestEveryReadOfTheDocumentIsMeasured(t *testing.T) {
	reads, err := adminReads(openapi.Operations(), knownValues)
	if err != nil {
		t.Fatal(err)
	}
	measured := map[string]int{}
	for _, r := range reads {
		measured[r.op.Path]++
		if strings.ContainsAny(r.path, "{} ") {
			t.Errorf("%s is no path", r.path)
		}
	}
	for _, op := range openapi.Operations() {
		if op.Method == http.MethodGet && measured[op.Path] == 0 && !slices.Contains(unmeasured, op.ID) {
			t.Errorf("%s is not measured", op.Path)
		}
	}
	if n := measured["/v1/receipts"]; n < 20 {
		t.Errorf("receipts are searched in %d ways", n)
	}
}

func TestARouteWhoseParameterHasNoValueStopsTheBenchmark(t *testing.T) {
	_, err := adminReads([]openapi.Operation{{ID: "read-thing", Method: http.MethodGet, Path: "/v1/things/{thing}", Parameters: []string{"thing"}, Required: []string{"thing"}}}, knownValues)
	if err == nil || !strings.Contains(err.Error(), "read-thing needs thing") {
		t.Errorf("the error is %v", err)
	}
}

func TestAReadHasTheSameNameInEveryRun(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/receipts?after=2026-11-27T08%3A00%3A00.5Z+n1%2F17":         "/v1/receipts?after=TIME",
		"/v1/receipts?since=2026-11-27T08%3A00%3A00Z&outcome=unknown":   "/v1/receipts?since=TIME&outcome=unknown",
		"/v1/tenants/tenant-042/decision?principal=agent-3&tokens=true": "/v1/tenants/tenant-042/decision?principal=agent-3&tokens=true",
	} {
		if got := (&adminRead{path: path}).what(); got != want {
			t.Errorf("%s is called %s, want %s", path, got, want)
		}
	}
}

func TestEveryViewIsMeasuredWithValues(t *testing.T) {
	values := maps.Clone(knownValues)
	values["draft"] = `{"prefer":[]}`
	reads := readsOfPage(values)
	for i, r := range reads {
		if strings.ContainsAny(r.path, "{} ") || i > 0 && reads[i-1].what == r.what {
			t.Errorf("%s is no path, or is there twice", r.path)
		}
	}
	if len(reads) < 2*len(pageReads) {
		t.Errorf("only %d addresses are measured", len(reads))
	}
}
