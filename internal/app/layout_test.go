package app_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// allowed is the plan of the house: which of our packages each may import. A
// new edge is a change of design; make it here, with a word in the review.
var allowed = map[string]string{
	"internal/switchboard":       "",
	"internal/wire":              "internal/switchboard",
	"internal/sample":            "",
	"internal/dial":              "",
	"internal/config":            "internal/dial internal/switchboard",
	"internal/canonical":         "internal/switchboard",
	"internal/identity":          "internal/switchboard",
	"internal/constraint":        "internal/switchboard internal/store",
	"internal/cache":             "internal/switchboard internal/store internal/wire",
	"internal/preview":           "internal/switchboard internal/store internal/wire",
	"internal/idempotency":       "internal/switchboard internal/store internal/wire",
	"internal/catalog":           "internal/switchboard internal/canonical internal/wire",
	"internal/contract":          "internal/switchboard internal/canonical internal/wire",
	"internal/decide":            "internal/switchboard internal/canonical",
	"internal/matcher":           "internal/switchboard internal/decide",
	"internal/health":            "internal/switchboard internal/decide internal/wire internal/store",
	"internal/ranking":           "internal/switchboard internal/decide",
	"internal/policy":            "internal/switchboard internal/canonical internal/decide internal/redact internal/wire",
	"internal/redact":            "internal/redact/detect internal/switchboard internal/wire",
	"internal/redact/detect":     "internal/switchboard",
	"internal/scan":              "internal/switchboard internal/wire",
	"internal/question":          "internal/scan internal/switchboard internal/wire",
	"internal/archive":           "internal/switchboard internal/canonical internal/store",
	"internal/receipt":           "internal/switchboard internal/canonical internal/store internal/wire",
	"internal/store":             "internal/switchboard", // for Secret: a password that cannot be printed
	"internal/token":             "",
	"internal/search":            "internal/switchboard internal/wire",
	"internal/surface":           "internal/switchboard internal/canonical internal/decide internal/wire",
	"internal/telemetry":         "internal/switchboard",
	"internal/turn":              "internal/switchboard",
	"internal/run":               "internal/switchboard internal/store internal/surface",
	"internal/upstream":          "internal/upstream/endpoint internal/upstream/link internal/upstream/mask internal/upstream/process internal/upstream/slot internal/upstream/task internal/switchboard internal/wire",
	"internal/upstream/link":     "internal/upstream/endpoint internal/upstream/frame internal/upstream/http1 internal/upstream/mask internal/upstream/process internal/upstream/sent internal/upstream/slot internal/upstream/task internal/dial internal/scan internal/switchboard internal/wire",
	"internal/upstream/http1":    "internal/upstream/sent internal/dial",
	"internal/upstream/sent":     "",
	"internal/upstream/endpoint": "internal/switchboard internal/upstream/http1 internal/wire",
	"internal/upstream/task":     "",
	"internal/upstream/frame":    "",
	"internal/upstream/slot":     "internal/switchboard",
	"internal/upstream/mask":     "internal/switchboard internal/wire",
	"internal/upstream/process":  "internal/switchboard internal/upstream/mask",
	"internal/lazyexpand":        "internal/switchboard internal/wire internal/decide internal/surface internal/run internal/search",
	"internal/gateway":           "internal/switchboard internal/canonical internal/wire internal/run internal/surface internal/lazyexpand internal/preview internal/store internal/cluster",
	"internal/cluster":           "internal/switchboard internal/store",
	"policies":                   "",
	"tenants":                    "",
	"cmd/switchboard":            "internal/scan internal/upstream/process internal/app internal/config internal/dial internal/decide internal/health internal/identity internal/policy internal/receipt internal/sample internal/store internal/switchboard internal/wire tenants",
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

// dialsItself are the files that open connections, or make HTTP clients, without package dial, and to where.
var dialsItself = map[string]string{
	"internal/dial/dial.go":          "it is the check",
	"internal/upstream/link/http.go": "servers, with dial.Context",
	"cmd/switchboard/fetch.go":       "manifests, with dial.Context",
	"internal/cluster/cluster.go":    "replicas, which prove by TLS that they have the secret",
	"cmd/switchboard/client.go":      "a Switchboard, as the user says",
	"cmd/switchboard/ready.go":       "our own listener",
}

// SS-05: an address that a name leads to is checked when it is dialled, so no other code may open a connection to a server.
func TestSS05NothingDialsAServerWithoutTheCheck(t *testing.T) {
	opens := regexp.MustCompile(`\bnet\.(Dial|DialTimeout|Dialer|DialTCP|DialIP|DialUDP)\b|\btls\.(Dial|DialWithDialer|Dialer)\b|\bhttp\.(Transport|Client|Default(Client|Transport)|Get|Head|Post|PostForm)\b`)
	found := map[string]int{}
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		name = filepath.ToSlash(strings.TrimPrefix(name, "../../"))
		switch {
		case err != nil:
			return err
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || !strings.HasPrefix(name, "internal/") && !strings.HasPrefix(name, "cmd/"):
			return nil
		}
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			code, _, _ := strings.Cut(line, "//")
			found[name] += len(opens.FindAllString(code, -1))
		}
		if found[name] > 0 && dialsItself[name] == "" {
			t.Errorf("%s opens connections itself; connections to servers go through dial.Context", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range dialsItself {
		if found[name] == 0 {
			t.Errorf("%s opens no connection; take it out of dialsItself", name)
		}
	}
	for _, name := range []string{"internal/upstream/link/http.go", "cmd/switchboard/fetch.go"} {
		text, _ := os.ReadFile(filepath.Join("../..", name))
		if n := bytes.Count(text, []byte("http.Transport{")); n != 1 || bytes.Count(text, []byte("dial.Context,")) != n {
			t.Errorf("%s has %d transports, which must all use dial.Context", name, n)
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
