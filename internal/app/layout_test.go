package app_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// allowed is the plan of the house: which of our packages each may import. A
// new edge is a change of design; make it here, with a word in the review.
var allowed = map[string]string{
	"internal/switchboard":   "",
	"internal/wire":          "internal/switchboard",
	"internal/sample":        "",
	"internal/config":        "internal/switchboard",
	"internal/canonical":     "internal/switchboard",
	"internal/identity":      "internal/switchboard",
	"internal/constraint":    "internal/switchboard internal/store",
	"internal/cache":         "internal/switchboard internal/store internal/wire",
	"internal/preview":       "internal/switchboard internal/store internal/wire",
	"internal/idempotency":   "internal/switchboard internal/store internal/wire",
	"internal/catalog":       "internal/switchboard internal/canonical internal/wire",
	"internal/contract":      "internal/switchboard internal/canonical internal/wire",
	"internal/decide":        "internal/switchboard internal/canonical",
	"internal/matcher":       "internal/switchboard internal/decide",
	"internal/health":        "internal/switchboard internal/decide internal/wire internal/store",
	"internal/ranking":       "internal/switchboard internal/decide",
	"internal/policy":        "internal/switchboard internal/canonical internal/decide internal/redact internal/wire",
	"internal/redact":        "internal/redact/detect internal/switchboard internal/wire",
	"internal/redact/detect": "internal/switchboard",
	"internal/scan":          "internal/switchboard internal/wire",
	"internal/question":      "internal/scan internal/switchboard internal/wire",
	"internal/archive":       "internal/switchboard internal/canonical internal/store",
	"internal/receipt":       "internal/switchboard internal/canonical internal/store internal/wire",
	"internal/store":         "internal/switchboard", // for Secret: a password that cannot be printed
	"internal/token":         "",
	"internal/search":        "internal/switchboard internal/wire",
	"internal/surface":       "internal/switchboard internal/canonical internal/decide internal/wire",
	"internal/telemetry":     "internal/switchboard",
	"internal/run":           "internal/switchboard internal/store internal/surface",
	"internal/upstream":      "internal/scan internal/switchboard internal/wire",
	"internal/lazyexpand":    "internal/switchboard internal/wire internal/decide internal/surface internal/run internal/search",
	"internal/gateway":       "internal/switchboard internal/canonical internal/wire internal/run internal/surface internal/lazyexpand internal/preview internal/store internal/cluster",
	"internal/cluster":       "internal/switchboard internal/store",
	"policies":               "",
	"tenants":                "",
	"cmd/switchboard":        "internal/scan internal/upstream internal/app internal/config internal/decide internal/health internal/identity internal/policy internal/receipt internal/sample internal/store internal/switchboard internal/wire tenants",
}

func TestImportsFollowThePlan(t *testing.T) {
	const module = "github.com/summit-switchboard/switchboard/"
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		pkg := strings.TrimPrefix(f[0], module)
		if pkg == "internal/app" || strings.HasPrefix(pkg, "test/") { // they know all the others
			continue
		}
		may, ok := allowed[pkg]
		if !ok {
			t.Errorf("%s is not on the plan; add it to allowed", pkg)
		}
		for _, imp := range f[1:] {
			if in, ok := strings.CutPrefix(imp, module); ok && !slices.Contains(strings.Fields(may), in) {
				t.Errorf("%s imports %s, which the plan does not allow", pkg, in)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}: {{.Doc}}`, "github.com/summit-switchboard/switchboard/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if pkg, doc, _ := strings.Cut(line, ": "); strings.TrimSpace(doc) == "" && !strings.Contains(pkg, "/test/") {
			t.Errorf("%s has no package comment", pkg)
		}
	}
}
