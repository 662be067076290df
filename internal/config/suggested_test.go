package config_test

import (
	"strings"
	"testing"
)

func TestSuggestedOverlaysAreNotLoaded(t *testing.T) {
	const row = "server: a\ntools: {s: {capabilities: [{verb: read, resource: fs}]}}\n"
	files := twoTenants()
	want := mustLoad(t, files, nil)
	got := mustLoad(t, withFiles(files, "overlays/a.suggested.yaml", row, "overlays/b.suggested.yaml", "{{", "tenants/acme/overlays/a.suggested.yaml", row), nil)
	if len(got.Faulty) > 0 || len(got.Overlays) != len(want.Overlays) || len(got.Tenants["acme"].Overlays) != len(want.Tenants["acme"].Overlays) {
		t.Errorf("%v, overlays %v", got.Faulty, got.Overlays)
	}
	if got := mustLoad(t, withFiles(files, "overlays/more.yaml", row), nil); len(got.Overlays) != len(want.Overlays)+1 {
		t.Errorf("the row counts nowhere: %v", got.Overlays)
	}
}

func TestAnOverlayIsCheckedBeforeItIsWritten(t *testing.T) {
	c := mustLoad(t, twoTenants(), nil)
	for text, want := range map[string]string{
		"server: a\ntools: {s: {capabilities: [{verb: read, resource: fs}]}}\n":                     "",
		"server: a\ntools:\n  s: {capabilities: [{verb: raed, resource: fs}]}\n":                    `x.yaml:3:29: tool "s": capabilities: verb: "raed" is no verb; did you mean "read"?`,
		"server: a\ntools:\n  s: {capabilities: [{verb: read, resource: ff}]}\n":                    `"ff" is no resource here`,
		"server: c\ntools: {s: {capabilities: [{verb: read, resource: fs}]}}\n":                     `"c" is no server here`,
		"server: a\ntools: {s: {equivalents: [{tool: b/t}], timeout: 9s}, t: {capabilities: []}}\n": "the list is empty",
		"{{": "x.yaml:1:",
	} {
		err := c.CheckOverlay("x.yaml", []byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
