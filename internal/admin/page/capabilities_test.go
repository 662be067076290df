package page_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/atom"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
)

// resolutionOf returns verdicts with their contracts, as the API answers them, in which everything that others can write is one of the texts, in turn.
func resolutionOf(t *testing.T, texts ...string) string {
	t.Helper()
	turn := 0
	next := func() string {
		turn++
		return texts[turn%len(texts)]
	}
	var x admin.Resolution
	for _, name := range verdict.Names {
		x.Verdicts = append(x.Verdicts, verdict.Verdict{Capability: next() + "@1.0.0", Verdict: name, Blocking: []string{next()}, Warnings: []string{next()}, RequiredActions: []string{next()}})
		x.Contracts = append(x.Contracts, admin.ContractDetail{
			Description: next(), At: next(), Needs: next(), Permissions: []string{next()}, Requires: []string{next()}, SideEffects: []string{next()}, RiskLevel: next(),
			Atoms: []atom.Summary{{ID: "one", Kind: next(), State: capability.Red, Since: time.Now(), Reason: next()}},
			Tools: []admin.DescribedTool{{Name: next(), Definition: json.RawMessage(`{"name":"x"}`), Providers: []string{next(), next()}}, {Name: next(), Definition: json.RawMessage(`{}`)}},
		})
	}
	x.Starting = []switchboard.ServerID{switchboard.ServerID(next())}
	raw, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// capabilitiesScene shows the capability of the address, with each verdict.
func capabilitiesScene(t *testing.T) hostileScene {
	d := newDesk(t, "")
	d.tenants = []switchboard.TenantID{"acme"}
	cookie := d.signIn(t)
	return hostileScene{[]string{"/capabilities"}, hostileTexts(t, lineBytes), func(t *testing.T, address string, texts ...string) string {
		t.Helper()
		d.api = answer(200, "application/json", resolutionOf(t, texts...))
		return d.open(t, address+"?"+url.Values{"tenant": {"acme"}, "capability": {texts[0]}}.Encode(), cookie)
	}, ""}
}

func TestCapabilitiesBeginWithWhatMayNotBeUsed(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	d.tenants = []switchboard.TenantID{"acme", "umbrella"}
	cookie := d.signIn(t)
	if w := d.ask("GET", "/capabilities", host, "", cookie...); w.Header().Get("Location") != "/capabilities?tenant=acme" {
		t.Errorf("without a tenant, the view is %d %v", w.Code, w.Header())
	}
	d.api = answer(200, "application/json", resolutionOf(t, "x"))
	page := d.ask("GET", "/capabilities?tenant=acme", host, "", cookie...).Body.String()
	at := -1
	for _, name := range slices.Backward(verdict.Names) {
		here := strings.Index(page, `<span class="verdict `+string(name)+`">`)
		if here <= at {
			t.Errorf("%s is not where it belongs:\n%s", name, page)
		}
		at = here
	}
	for _, want := range []string{"switchboard resolve --contracts --tenant acme", "yes-after-probe: 1", "no server", "Probe what it depends on", ">red, for"} {
		if !strings.Contains(page, want) {
			t.Errorf("the view lacks %q:\n%s", want, page)
		}
	}
	d.api = answer(200, "application/json", resolutionOf(t, ""))
	if bare := d.ask("GET", "/capabilities?tenant=acme", host, "", cookie...).Body.String(); strings.Contains(bare, `<span><bdi class="theirs"></bdi></span>`) {
		t.Errorf("what has no description has an empty one:\n%s", bare)
	}
	if got := d.asked[len(d.asked)-1]; got != "ann GET /v1/resolve?contracts=true&tenant=acme" {
		t.Errorf("the API is asked %s", got)
	}

	_, token, _ := strings.Cut(page, `name="token" value="`)
	token, _, _ = strings.Cut(token, `"`)
	fields := url.Values{"act": {"probe"}, "at": {"tenant=acme"}, "capability": {"io.fs.read"}, "token": {token}}
	w := d.ask("POST", "/capabilities", host, fields.Encode(), append(cookie, "Origin", "http://"+host, "Content-Type", form)...)
	if got := d.asked[len(d.asked)-1]; w.Code != http.StatusSeeOther || got != "ann GET /v1/resolve?capability=io.fs.read&probe=true&tenant=acme" {
		t.Errorf("the probe is %d, and the API is asked %s", w.Code, got)
	}
}
