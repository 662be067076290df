package served_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/summit-switchboard/switchboard/test/rig"
)

const noticeSecret = "whsec_cGxhbnRlZCBzZWNyZXQgb2YgdGhlIG9uY2FsbCB0ZWFt"

// An oncall takes notices over HTTP.
type oncall struct {
	*httptest.Server
	verifier *standardwebhooks.Webhook
	status   atomic.Int32 // of the answers; 0 means 204
	location atomic.Pointer[string]

	mu      sync.Mutex
	notices map[string]string // bodies of the accepted ones, by id
	twice   int
	bad     []string
}

func newOncall(t *testing.T) *oncall {
	t.Helper()
	o := &oncall{notices: map[string]string{}}
	var err error
	if o.verifier, err = standardwebhooks.NewWebhook(noticeSecret); err != nil {
		t.Fatal(err)
	}
	o.Server = httptest.NewServer(o)
	o.Config.SetKeepAlivesEnabled(false)
	t.Cleanup(o.Close)
	return o
}

func (o *oncall) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if at := o.location.Load(); at != nil {
		w.Header().Set("Location", *at)
	}
	status := int(o.status.Load())
	if status == 0 {
		status = http.StatusNoContent
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.verifier.Verify(body, r.Header); err != nil || r.Method != http.MethodPost {
		o.bad = append(o.bad, fmt.Sprint(r.Method, err))
	}
	if status < 300 {
		id := r.Header.Get("webhook-id")
		if _, had := o.notices[id]; had {
			o.twice++
		}
		o.notices[id] = string(body)
	}
	w.WriteHeader(status)
}

// await waits until there are n notices, and returns them.
func (o *oncall) await(t *testing.T, n int) (all []string) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%d notices are delivered", n), func() string {
		o.mu.Lock()
		defer o.mu.Unlock()
		if len(o.notices) < n {
			return fmt.Sprintf("%d are", len(o.notices))
		}
		return ""
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, body := range o.notices {
		all = append(all, body)
	}
	if len(all) != n || len(o.bad) > 0 {
		t.Errorf("%d notices, want %d; with bad signatures: %q", len(all), n, o.bad)
	}
	return all
}

// tellingConfig is a configuration with the server a, and the recipient oncall at the address.
func tellingConfig(url string, args ...string) string {
	return "-- whsec --\n" + noticeSecret + "\n-- switchboard.yaml --\nstart_deadline: 20s\nservers:\n  " + rig.FakeRow("a", args...) +
		"\nnotify:\n  oncall: {url: \"" + url + "/planted-path\", secret: \"${file:whsec}\"}\n  of-beta: {url: \"" + url + "\", secret: \"${file:whsec}\", tenants: [beta]}\nTENANTS\n"
}

const tellingRego = rig.AllowAll + `
obligations["a/told"] contains {"type": "notify", "who": "oncall"}
obligations["a/nobody"] contains {"type": "notify", "who": ["oncall", "sombody"]}
obligations["a/foreign"] contains {"type": "notify", "who": ["of-beta"]}
obligations["a/denied"] contains {"type": "notify", "who": ["oncall"]}
deny["a/denied"] contains "not now" if input.phase == "call"
`

func TestAPersonIsToldOfACallBeforeItIsMadeAndOfNoCallThatIsNot(t *testing.T) {
	t.Parallel()
	o := newOncall(t)
	marks := filepath.Join(t.TempDir(), "marks")
	h := rig.ServeTenants(t, tellingConfig(o.URL, "marks="+marks, `{"name":"told","inputSchema":{"type":"object","required":["q"],"properties":{"q":{"type":"string"}}}}`,
		fmt.Sprintf(rig.Tool, "nobody"), fmt.Sprintf(rig.Tool, "foreign"), fmt.Sprintf(rig.Tool, "denied"), fmt.Sprintf(rig.Tool, "quiet")), "",
		map[string]rig.TenantConfig{"acme": {Rego: tellingRego}, "beta": {Rego: rig.AllowAll}})
	clients := h.Clients(t, "acme")
	for name, s := range clients {
		for _, c := range []struct{ tool, arguments, want string }{
			{"told", `{"q":"planted-argument"}`, ""},
			{"told", `{}`, "SB-CAP-003"},
			{"nobody", `{}`, "SB-POL-003"},
			{"foreign", `{}`, "SB-POL-003"},
			{"denied", `{}`, "SB-POL-001"},
			{"quiet", `{}`, ""},
		} {
			if got := rig.Call(t, s, c.tool, c.arguments); got != c.want {
				t.Errorf("%s: %s %s: %q, want %q", name, c.tool, c.arguments, got, c.want)
			}
		}
	}
	for _, body := range o.await(t, len(clients)) {
		var n struct {
			Type string
			Data json.RawMessage
		}
		if err := json.Unmarshal([]byte(body), &n); err != nil || n.Type != "call.made" ||
			!slices.Contains([]string{`{"tenant":"acme","principal":"someone","task":"all","tool":"a/told"}`, `{"tenant":"acme","principal":"local","task":"all","tool":"a/told"}`}, string(n.Data)) {
			t.Errorf("a notice says %s, %v", body, err)
		}
	}
	if got := rig.ReadFile(t, marks); strings.Contains(got, "nobody") || strings.Contains(got, "foreign") || strings.Contains(got, "denied") {
		t.Errorf("calls were made that may not be made: %s", got)
	}
	_, metrics := h.Metrics()
	if metrics["switchboard_notices_total delivered oncall"] == 0 && metrics["switchboard_notices_total oncall delivered"] == 0 {
		t.Error("no delivery is counted")
	}
	status, _, _ := rig.Command(t, h.Dir, "status", "--url", h.URL)
	valid, more, _ := rig.Command(t, h.Dir, "validate")
	receipts, _, _ := rig.Command(t, h.Dir, "receipts", "list", "--json", "--url", h.URL)
	for what, text := range map[string]string{"the log": h.Logged(), "status": status, "validate": valid + more, "receipts": receipts} {
		for _, planted := range []string{"planted-path", noticeSecret, noticeSecret[6:], "planted-argument"} {
			if strings.Contains(text, planted) {
				t.Errorf("%s has %q", what, planted)
			}
		}
	}
	if !strings.Contains(h.Logged(), "msg=notice type=call.made tenant=acme to=[oncall] principal=someone task=all tool=a/told") {
		t.Error("the log does not have the notice")
	}
}

func TestSS04AWebhookThatAnswersWithARedirectTo127001IsNotFollowedOnTheServedPath(t *testing.T) {
	t.Parallel()
	var inside atomic.Int32
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Add(1) }))
	defer target.Close()
	o := newOncall(t)
	o.status.Store(http.StatusTemporaryRedirect)
	o.location.Store(&target.URL)
	h := rig.ServeTenants(t, tellingConfig(o.URL, fmt.Sprintf(rig.Tool, "told")), "", map[string]rig.TenantConfig{"acme": {Rego: tellingRego}, "beta": {}})
	if got := rig.Call(t, h.OpenAs("acme", true), "told", `{}`); got != "" {
		t.Fatal(got)
	}
	rig.Eventually(t, "the redirect is a failure", func() string {
		return rig.ReasonUnless(strings.Contains(h.Logged(), "it answers 307, and a redirect is not followed"), "it is not")
	})
	// The operator writes the new address. What waits is delivered there.
	moved := newOncall(t)
	name := filepath.Join(h.Dir, "switchboard.yaml")
	rig.ReplaceFile(t, name, strings.ReplaceAll(rig.ReadFile(t, name), o.URL, moved.URL))
	moved.await(t, 1)
	if n := inside.Load(); n != 0 {
		t.Errorf("%d requests went where the redirect leads", n)
	}
}

func TestNoticesThatCannotBeDeliveredAreShownAndSurviveAKill(t *testing.T) {
	t.Parallel()
	o := newOncall(t)
	o.status.Store(http.StatusInternalServerError)
	h := rig.ServeTenants(t, tellingConfig(o.URL, fmt.Sprintf(rig.Tool, "told")), "", map[string]rig.TenantConfig{"acme": {Rego: tellingRego}, "beta": {}})
	const calls = 20
	s := h.OpenAs("acme", true)
	for range calls {
		if got := rig.Call(t, s, "told", `{}`); got != "" {
			t.Fatal(got)
		}
	}
	var status string
	var code int
	rig.Eventually(t, "an attempt fails", func() string {
		status, _, code = rig.Command(t, h.Dir, "status", "--url", h.URL)
		return rig.ReasonUnless(strings.Contains(status, "the last attempt failed"), status)
	})
	if !strings.Contains(status, fmt.Sprintf("\nnotices: oncall: %d wait; the last attempt failed: it answers 500; next at 20", calls)) || strings.Contains(status, "of-beta") || code != 1 {
		t.Errorf("status exits %d, and does not say only that the notices for oncall wait:\n%s", code, status)
	}
	found, _, code := rig.Command(t, h.Dir, "doctor", "--quiet")
	if !strings.Contains(found, fmt.Sprintf("WRONG  notices for oncall: %d wait; the last attempt failed: it answers 500", calls)) || !strings.Contains(found, `correct "notify" in `) || code != 1 {
		t.Errorf("doctor exits %d, and does not say what to do about the notices:\n%s", code, found)
	}
	h.Kill(t)
	o.status.Store(0)
	o.await(t, calls)
	rig.Eventually(t, "the status shows no notices", func() string {
		status, _, _ = rig.Command(t, h.Dir, "status", "--url", h.URL)
		return rig.ReasonUnless(strings.HasPrefix(status, "switchboard ") && !strings.Contains(status, "notices:"), status)
	})
	if found, _, _ = rig.Command(t, h.Dir, "doctor"); strings.Contains(found, "notices for") {
		t.Errorf("all notices are delivered, and doctor says:\n%s", found)
	}
	if got := rig.Call(t, h.OpenAs("acme", true), "told", `{}`); got != "" {
		t.Fatal(got)
	}
	o.await(t, calls+1)
}

func TestReplicasTellOfEachCallAlsoWhenOneIsKilled(t *testing.T) {
	t.Parallel()
	o := newOncall(t)
	o.status.Store(http.StatusServiceUnavailable)
	c := rig.ServeReplicas(t, strings.Replace(tellingConfig(o.URL, fmt.Sprintf(rig.Tool, "told")), "TENANTS\n", `tenants: {default: {servers: ["*"], allow: [by_name]}, beta: {servers: ["*"]}}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
-- tenants/default/tasks/all.yaml --
task_id: all
`+rig.RequireAll+rig.LayerFile("default")+tellingRego, 1))
	const each = 5
	for _, g := range c.All {
		s := g.Open(t, "/mcp", true)
		for range each {
			if got := rig.Call(t, s, "told", `{}`); got != "" {
				t.Fatal(got)
			}
		}
	}
	killed := c.All[0]
	for _, g := range c.All { // the one that delivers, if it has begun
		if strings.Contains(g.Logged(), "a notice is not delivered") {
			killed = g
		}
	}
	if err := killed.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	o.status.Store(0)
	o.await(t, len(c.All)*each)
}
