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

// plan is the import plan: a line for each package, with those of our packages that it may import. A new edge changes the design:
// add it here, and give the reason in the review.
const plan = `
cmd/switchboard: docs internal/acquire internal/admin internal/admin/api internal/admin/approvals internal/admin/now internal/admin/past internal/admin/pins internal/admin/trial internal/admin/verification internal/annotate internal/app internal/approval internal/atom internal/bind internal/bridge internal/budget internal/capability internal/change internal/completion internal/config internal/config/edit internal/connect internal/credential internal/dial internal/doctor internal/document internal/event internal/evidence internal/health internal/heap internal/heap/early internal/history internal/identity internal/importer internal/join internal/logoutput internal/markdown internal/memory internal/npm internal/npm/packagelock internal/npm/update internal/oauth internal/ownfile internal/policy internal/policy/author internal/policysource internal/proposal internal/recall internal/receipt internal/replay internal/rewrite internal/route internal/sample internal/scan internal/serving internal/standing internal/store internal/switchboard internal/upstream internal/upstream/process internal/vault internal/verdict internal/verify internal/wall internal/whatif internal/wire licenses tenants
capabilities:
docs:
internal/access: internal/switchboard
internal/acquire: internal/admin/approvals internal/admin/verification internal/annotate internal/catalog internal/change internal/config internal/config/edit internal/evidence internal/npm internal/npm/packagelock internal/proposal internal/receipt internal/registry internal/scan internal/store internal/store/lease internal/switchboard internal/verify internal/wire
internal/admin: internal/archive internal/atom internal/bind internal/budget internal/canonical internal/capability internal/catalog internal/cluster internal/config internal/contract internal/decide internal/event internal/health internal/heap internal/history internal/identity internal/matcher internal/memory internal/notice internal/platform internal/policy internal/policy/author internal/policysource internal/receipt internal/replay internal/revocation internal/run internal/search internal/store internal/surface internal/switchboard internal/telemetry internal/upstream internal/verdict internal/wire
internal/admin/api: internal/access internal/acquire internal/admin internal/admin/approvals internal/admin/labels internal/admin/now internal/admin/page internal/admin/past internal/admin/pins internal/admin/trial internal/admin/verification internal/approval internal/bind internal/budget internal/change internal/config internal/config/edit internal/document internal/event internal/evidence internal/history internal/idempotency internal/memory internal/proposal internal/receipt internal/replay internal/signin internal/standing internal/switchboard internal/whatif internal/wire
internal/admin/approvals: internal/access internal/approval internal/receipt internal/shown internal/standing internal/switchboard internal/wire
internal/admin/labels: internal/admin internal/annotate internal/change internal/config/edit internal/switchboard
internal/admin/now: internal/access internal/admin internal/admin/approvals internal/admin/pins internal/approval internal/budget internal/health internal/history internal/switchboard internal/upstream
internal/admin/page: internal/access internal/admin internal/admin/approvals internal/admin/now internal/admin/pins internal/admin/trial internal/approval internal/atom internal/budget internal/change internal/config/edit internal/credential internal/document internal/health internal/history internal/identity internal/policy/author internal/receipt internal/shown internal/signin internal/switchboard internal/vault internal/verdict internal/verify internal/whatif internal/wire
internal/admin/pins: internal/admission internal/canonical internal/change internal/evidence internal/lockfile internal/pin internal/receipt internal/scan internal/switchboard
internal/admin/past: internal/admin internal/bind internal/catalog internal/change internal/config/edit internal/decide internal/document internal/memory internal/proposal internal/ranking internal/receipt internal/search internal/switchboard
internal/admin/trial: internal/admin internal/admin/approvals internal/identity internal/switchboard internal/upstream/endpoint internal/wire
internal/admin/verification: internal/canonical internal/evidence internal/receipt internal/scan internal/switchboard internal/verify internal/verify/bench
internal/admission: internal/canonical internal/catalog internal/contract internal/decide internal/shape internal/switchboard internal/wire
internal/annotate: internal/capability internal/catalog internal/config/edit internal/document internal/scan internal/switchboard internal/wire
internal/app: internal/acquire internal/admin internal/admin/api internal/admin/approvals internal/admin/page internal/admin/past internal/admin/pins internal/admin/trial internal/admin/verification internal/admission internal/approval internal/archive internal/atom internal/bind internal/budget internal/cache internal/canonical internal/capability internal/certfile internal/change internal/cluster internal/commit internal/config internal/connlimit internal/constraint internal/contract internal/credential internal/event internal/evidence internal/gateway internal/grant internal/health internal/heap internal/history internal/idempotency internal/identity internal/idleconn internal/lazyexpand internal/memory internal/notice internal/npm internal/ownfile internal/pin internal/policy internal/policy/boundary internal/policysource internal/post internal/preview internal/proposal internal/question internal/recall internal/receipt internal/registry internal/replay internal/revocation internal/run internal/scan internal/scan/suspect internal/shown internal/signin internal/standing internal/store internal/store/feed internal/store/lease internal/surface internal/switchboard internal/telemetry internal/turn internal/upstream internal/upstream/slot internal/vault internal/verdict internal/verify/bench internal/watch internal/whatif internal/wire
internal/atom: internal/canonical internal/capability internal/dial internal/store internal/store/feed internal/store/lease internal/switchboard internal/wire
internal/approval: internal/canonical internal/store internal/switchboard internal/wire
internal/archive: internal/canonical internal/store internal/switchboard
internal/bind: internal/admission internal/approval internal/canonical internal/capability internal/catalog internal/config internal/contract internal/decide internal/health internal/identity internal/lazyexpand internal/matcher internal/policy internal/policy/boundary internal/preview internal/ranking internal/run internal/surface internal/switchboard internal/token internal/verdict
internal/bridge: internal/switchboard internal/wire
internal/budget: internal/budget/price internal/store internal/switchboard
internal/budget/price: internal/switchboard internal/wire
internal/cache: internal/store internal/store/feed internal/store/lease internal/switchboard internal/wire
internal/canonical: internal/switchboard internal/wire
internal/capability: internal/canonical internal/switchboard
internal/catalog: internal/canonical internal/capability internal/shape internal/switchboard internal/wire
internal/certfile: internal/ownfile
internal/change: internal/config internal/document internal/receipt internal/replay internal/rewrite internal/store internal/switchboard
internal/clientfile: internal/document internal/switchboard
internal/cluster: internal/store internal/store/lease internal/switchboard
internal/commit: internal/budget internal/receipt internal/store internal/switchboard internal/wire
internal/completion:
internal/config: internal/capability internal/certfile internal/contract internal/document internal/endpoint internal/lockfile internal/npm/packagelock internal/ownfile internal/route internal/scan/suspect internal/secret internal/shape internal/switchboard
internal/config/edit: internal/config internal/document internal/rewrite internal/switchboard
internal/connect: internal/clientfile internal/config internal/config/edit internal/document internal/importer internal/ownfile internal/rewrite internal/switchboard
internal/connlimit: internal/access internal/httphead
internal/constraint: internal/store internal/switchboard
internal/contract: internal/canonical internal/capability internal/catalog internal/switchboard internal/wire
internal/credential: internal/dial internal/oauth internal/receipt internal/route internal/store internal/switchboard internal/upstream/link internal/vault internal/wire
internal/decide: internal/canonical internal/capability internal/switchboard
internal/dial:
internal/doctor: internal/config internal/connect internal/join internal/notice internal/npm internal/ownfile internal/route internal/serving internal/store internal/switchboard internal/upstream internal/upstream/endpoint internal/upstream/link internal/upstream/process
internal/document: internal/switchboard
internal/endpoint: internal/dial internal/switchboard
internal/event: internal/switchboard
internal/evidence: internal/store internal/store/feed internal/switchboard internal/verify
internal/gateway: internal/access internal/approval internal/cluster internal/lazyexpand internal/preview internal/run internal/session internal/store internal/surface internal/switchboard internal/wire
internal/grant: internal/approval internal/lazyexpand internal/run internal/scan internal/surface internal/switchboard
internal/health: internal/decide internal/store internal/store/feed internal/store/lease internal/switchboard internal/wire
internal/heap:
internal/heap/early:
internal/history: internal/store internal/switchboard
internal/httphead:
internal/idempotency: internal/store internal/store/feed internal/store/lease internal/switchboard internal/wire
internal/identity: internal/switchboard
internal/idleconn:
internal/importer: internal/config internal/config/edit internal/document internal/endpoint internal/switchboard
internal/join: internal/switchboard
internal/lazyexpand: internal/decide internal/run internal/search internal/surface internal/switchboard internal/wire
internal/lockfile: internal/document internal/switchboard
internal/logoutput: internal/ownfile internal/upstream/process
internal/markdown:
internal/matcher: internal/decide internal/switchboard
internal/memory: internal/catalog internal/receipt internal/store internal/store/lease internal/switchboard internal/wire
internal/notice: internal/dial internal/store internal/store/feed internal/store/lease internal/switchboard
internal/npm: internal/npm/packagelock internal/store internal/switchboard
internal/npm/packagelock: internal/canonical internal/switchboard
internal/npm/update: internal/admission internal/npm internal/npm/packagelock internal/switchboard internal/upstream
internal/oauth: internal/dial internal/switchboard
internal/ownfile:
internal/pin: internal/admission internal/store internal/store/feed internal/switchboard
internal/platform:
internal/policy: internal/budget/price internal/canonical internal/decide internal/policy/cost internal/redact internal/switchboard internal/wire
internal/policy/author: internal/capability internal/policy internal/policy/boundary internal/policy/cost internal/switchboard internal/verdict
internal/policy/boundary: internal/capability internal/policy internal/switchboard internal/verdict policies
internal/policy/cost:
internal/policysource: internal/config internal/policy internal/policy/author internal/switchboard policies
internal/post:
internal/preview: internal/store internal/switchboard internal/wire
internal/proposal: internal/change internal/config internal/document internal/receipt internal/replay internal/shown internal/store internal/switchboard
internal/question: internal/scan internal/switchboard internal/wire
internal/ranking: internal/decide internal/switchboard
internal/recall: internal/canonical internal/config internal/store internal/switchboard internal/upstream
internal/receipt: internal/canonical internal/ownfile internal/store internal/store/lease internal/switchboard internal/wire
internal/redact: internal/redact/detect internal/switchboard internal/wire
internal/redact/detect: internal/switchboard
internal/registry: internal/dial internal/document internal/npm/packagelock internal/scan internal/scan/suspect internal/switchboard
internal/replay: internal/archive internal/bind internal/budget/price internal/canonical internal/capability internal/catalog internal/config internal/contract internal/decide internal/identity internal/lazyexpand internal/policy internal/policy/boundary internal/policysource internal/receipt internal/run internal/switchboard internal/wire
internal/revocation: internal/store internal/store/feed internal/switchboard
internal/rewrite: internal/ownfile
internal/route: internal/certfile internal/dial internal/switchboard
internal/run: internal/store internal/store/feed internal/surface internal/switchboard
internal/sample:
internal/scan: internal/switchboard internal/wire
internal/scan/suspect: internal/scan internal/switchboard internal/wire
internal/search: internal/switchboard internal/wire
internal/secret: internal/switchboard internal/upstream/process
internal/serving: internal/ownfile internal/switchboard
internal/session: internal/canonical internal/run internal/store internal/store/feed internal/surface internal/switchboard internal/wire
internal/shape: internal/switchboard internal/wire
internal/shown: internal/canonical internal/redact internal/scan internal/switchboard internal/wire
internal/signin: internal/dial internal/identity internal/store internal/switchboard
internal/standing: internal/approval internal/canonical internal/store internal/switchboard internal/wire
internal/store: internal/ownfile internal/store/segment internal/switchboard
internal/store/feed:
internal/store/lease: internal/store
internal/store/segment: internal/ownfile
internal/surface: internal/canonical internal/decide internal/shape internal/switchboard internal/wire
internal/switchboard:
internal/telemetry: internal/switchboard
internal/token:
internal/turn: internal/switchboard
internal/upstream: internal/switchboard internal/upstream/endpoint internal/upstream/link internal/upstream/mask internal/upstream/process internal/upstream/slot internal/upstream/task internal/wall internal/wire
internal/upstream/endpoint: internal/switchboard internal/upstream/http1 internal/wire
internal/upstream/frame:
internal/upstream/http1: internal/route internal/upstream/sent
internal/upstream/link: internal/dial internal/route internal/scan internal/shape internal/switchboard internal/upstream/endpoint internal/upstream/frame internal/upstream/http1 internal/upstream/mask internal/upstream/process internal/upstream/sent internal/upstream/slot internal/upstream/task internal/wall internal/wire
internal/upstream/mask: internal/switchboard internal/wire
internal/upstream/process: internal/switchboard internal/upstream/mask internal/wall internal/wall/passage
internal/upstream/sent:
internal/upstream/slot: internal/switchboard
internal/upstream/task:
internal/vault: internal/ownfile internal/store internal/store/feed internal/switchboard
internal/verdict: internal/capability internal/decide internal/switchboard
internal/verify: internal/canonical internal/contract internal/redact/detect internal/scan internal/scan/suspect internal/switchboard internal/wire
internal/verify/bench: internal/admission internal/switchboard internal/upstream internal/verify internal/wall internal/wire
internal/wall: internal/switchboard
internal/wall/passage: internal/dial internal/switchboard
internal/watch: internal/config internal/store/feed
internal/whatif: internal/heap internal/receipt internal/replay internal/switchboard
internal/wire: internal/switchboard
licenses:
licenses/linked:
policies:
tenants:
`

func TestImportsFollowThePlan(t *testing.T) {
	const module = "github.com/summit-switchboard/switchboard/"
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string][]string{}
	for line := range strings.Lines(strings.TrimPrefix(plan, "\n")) {
		pkg, imports, _ := strings.Cut(line, ":")
		allowed[pkg] = strings.Fields(imports)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		pkg := strings.TrimPrefix(f[0], module)
		if strings.HasPrefix(pkg, "test/") { // tests may import every package
			continue
		}
		may, ok := allowed[pkg]
		if !ok {
			t.Errorf("%s is not on the plan: add it", pkg)
		}
		for _, imp := range f[1:] {
			in, ours := strings.CutPrefix(imp, module)
			if ours && !slices.Contains(may, in) {
				t.Errorf("%s imports %s, which the plan does not allow", pkg, in)
			}
			may = slices.DeleteFunc(may, func(m string) bool { return m == in })
		}
		for _, in := range may {
			t.Errorf("%s does not import %s: take the edge out of the plan", pkg, in)
		}
		delete(allowed, pkg)
	}
	for pkg := range allowed {
		t.Errorf("there is no package %s: take it out of the plan", pkg)
	}
}

// dialsItself are the files that open connections or make HTTP clients without package dial, and
// the reason for each.
var dialsItself = map[string]string{
	"internal/atom/check.go":         "what the operator's probes name, with dial.Context",
	"internal/dial/dial.go":          "it is the check",
	"internal/oauth/request.go":      "authorization servers, with dial.Public; what the operator named, with dial.Context",
	"internal/credential/consent.go": "nothing: it names the type of the client of package link that it is given",
	"internal/upstream/link/http.go": "servers, with their route",
	"cmd/switchboard/fetch.go":       "manifests, with the route of their server",
	"internal/join/join.go":          "a process that serves the same folder, which proves that it has the token",
	"internal/cluster/cluster.go":    "replicas, which prove by TLS that they have the secret",
	"cmd/switchboard/client.go":      "a Switchboard, as the user says, or as package join finds it",
	"internal/doctor/running.go":     "a Switchboard, as the configuration or a client's file says",
	"internal/doctor/clock.go":       "servers, with their route",
	"internal/signin/provider.go":    "OpenID providers, with dial.Context",
	"internal/registry/registry.go":  "registries, which the operator named, with dial.Context",
	"internal/notice/outbox.go":      "nothing: it names the type of the client of carry.go",
	"internal/notice/carry.go":       "recipients of notices, whom the operator named, with dial.Context",
}

// SS-05: dial checks the address that a name resolves to, so no other code may open a connection to
// a server.
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
	for name, dials := range map[string]string{
		"internal/upstream/link/http.go": "way.DialContext, way.DialTLSContext,", "cmd/switchboard/fetch.go": "way.DialContext, way.DialTLSContext,",
		"internal/doctor/clock.go": "way.DialContext, way.DialTLSContext,", "internal/signin/provider.go": "dial.Context,", "internal/notice/carry.go": "dial.Context,",
		"internal/atom/check.go": "guarded(open),",
	} {
		text, _ := os.ReadFile(filepath.Join("../..", name))
		n := bytes.Count(text, []byte("http.Transport{"))
		for dial := range strings.FieldsSeq(dials) {
			if n != 1 || bytes.Count(text, []byte(dial)) != n {
				t.Errorf("%s has %d transports, which must all use %s", name, n, dials)
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
