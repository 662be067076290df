package served_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// repeated is what a client needs to see of a call with a key.
type repeated struct {
	code  string
	text  string // of the result
	given bool   // it was there already
}

// once calls a tool with an idempotency key in _meta.
func once(t *testing.T, s rig.Session, key, tool, arguments string) repeated {
	t.Helper()
	m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"_meta":{"io.switchboard/idempotency-key":%q},"name":%q,"arguments":%s}`, key, tool, arguments))
	return repetition(t, m)
}

func repetition(t *testing.T, m rig.Message) repeated {
	t.Helper()
	got := repeated{code: rig.Code(m)}
	var r struct {
		Content []struct{ Text string }
		Meta    map[string]json.RawMessage `json:"_meta"`
	}
	if m.Result != nil {
		if err := json.Unmarshal(m.Result, &r); err != nil {
			t.Errorf("%v: %s", err, m.Raw)
		}
	}
	for _, c := range r.Content {
		got.text += c.Text
	}
	if raw := r.Meta["io.switchboard/given"]; raw != nil {
		got.given = true
		if !strings.HasPrefix(string(raw), `{"from":"idempotency","first":"20`) {
			t.Errorf("given: %s", raw)
		}
	}
	return got
}

// overHTTP serves a fake, and notes whether a key ever reached it.
func overHTTP(t *testing.T, args ...string) (url string) {
	t.Helper()
	f := fakeserver.New(args)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("Idempotency-Key"); key != "" {
			t.Errorf("the server was told of the key %q", key)
		}
		f.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func lines(t *testing.T, file string) int { return strings.Count(rig.ReadFile(t, file), "\n") }

func TestACallWithAKeyIsExecutedOnceForClientsOfBothEras(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	dir := t.TempDir()
	marks, tape := filepath.Join(dir, "marks"), filepath.Join(dir, "tape")
	url := overHTTP(t, "marks="+marks, "tape="+tape, fmt.Sprintf(rig.Tool, "post"), fmt.Sprintf(rig.Tool, "get"))
	h := rig.ServeTenants(t, fmt.Sprintf("-- switchboard.yaml --\nservers:\n  a: {transport: http, url: %q}\nTENANTS\n", url), "",
		map[string]rig.TenantConfig{"acme": {Rego: rig.AllowAll}, "other": {Rego: rig.AllowAll}})
	eras := map[string]rig.Session{"legacy": h.OpenAs("acme", false), "modern": h.OpenAs("acme", true)}
	executed := 0
	for _, first := range slices.Sorted(maps.Keys(eras)) {
		key := "key of " + first
		executed++
		if got := once(t, eras[first], key, "post", `{"a":1}`); got != (repeated{text: `{"a":1}`}) {
			t.Errorf("%s: the first call: %+v", first, got)
		}
		for era, s := range eras {
			if got := once(t, s, key, "post", `{ "a": 1 }`); got != (repeated{text: `{"a":1}`, given: true}) {
				t.Errorf("%s, then %s: %+v", first, era, got)
			}
			if got := once(t, s, key, "post", `{"a":2}`); got.code != "SB-CAP-006" {
				t.Errorf("%s, then %s with other arguments: %+v", first, era, got)
			}
			for _, key := range []string{"", strings.Repeat("k", 256), "kéy", "k\t"} {
				if got := once(t, s, key, "post", `{}`); got.code != "error -32602" {
					t.Errorf("%s: the key %q: %+v", era, key, got)
				}
			}
			web := *s.(*rig.HTTPSession)
			web.Header = web.Header.Clone()
			web.Header.Set("Idempotency-Key", key)
			if got := repetition(t, callWith(t, &web, `{"name":"post","arguments":{"a":1}}`)); got != (repeated{text: `{"a":1}`, given: true}) {
				t.Errorf("%s, then %s by a header: %+v", first, era, got)
			}
			if got := once(t, &web, key, "post", `{"a":1}`); !got.given {
				t.Errorf("%s: both say the same: %+v", era, got)
			}
			if got := once(t, &web, key+"!", "post", `{"a":1}`); got.code != "error -32020" {
				t.Errorf("%s: header and _meta differ: %+v", era, got)
			}
		}
	}
	// What has the same key is another call where it is another's. A key is for one tool.
	executed++
	if got := once(t, eras["modern"], "key of legacy", "get", `{"a":1}`); got.code != "SB-CAP-006" {
		t.Errorf("another tool: %+v", got)
	}
	if got := once(t, h.OpenAs("other", true), "key of legacy", "post", `{"a":3}`); got != (repeated{text: `{"a":3}`}) {
		t.Errorf("another tenant: %+v", got)
	}
	if n := lines(t, marks); n != executed {
		t.Errorf("executed %d times, want %d", n, executed)
	}
	if said := rig.ReadFile(t, tape); strings.Contains(said, "idempotency") || strings.Contains(said, "key of") {
		t.Errorf("the server was told of a key:\n%s", said)
	}
}

// callWith makes tools/call.
func callWith(t *testing.T, s rig.Session, params string) rig.Message {
	t.Helper()
	m, _ := s.Ask(t, "tools/call", params)
	return m
}

func TestFiftyWhoRaceWithOneKeyExecuteOnce(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	dir := t.TempDir()
	marks, release := filepath.Join(dir, "marks"), filepath.Join(dir, "release")
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "post"))+"\nTENANTS\n", "",
		map[string]rig.TenantConfig{"acme": {Rego: rig.AllowAll}})
	var all sync.WaitGroup
	var given, asked atomic.Int64
	for i := range 50 {
		s := h.OpenAs("acme", i%2 == 0)
		all.Go(func() {
			asked.Add(1)
			switch got := once(t, s, "k", "post", fmt.Sprintf(`{"do":"await","until":%q}`, release)); {
			case got.code != "" || got.text == "":
				t.Errorf("%d: %+v", i, got)
			case got.given:
				given.Add(1)
			}
		})
	}
	rig.Eventually(t, "the call is under way, and all others have come", func() string {
		if lines(t, marks) == 0 || asked.Load() < 50 {
			return "not yet"
		}
		return ""
	})
	rig.WriteFile(t, release, "")
	all.Wait()
	if n := lines(t, marks); n != 1 || given.Load() != 49 {
		t.Errorf("executed %d times; given again to %d", n, given.Load())
	}
}

// onceRequest is what once sends, for those who want to hang up.
func onceRequest(ctx context.Context, t *testing.T, s *rig.HTTPSession, key, tool, arguments string) *http.Request {
	t.Helper()
	params := fmt.Sprintf(`{"_meta":{"io.switchboard/idempotency-key":%q},"name":%q,"arguments":%s}`, key, tool, arguments)
	header := map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
	if s.Modern {
		params = rig.WithMeta(params)
		header["Mcp-Protocol-Version"], header["Mcp-Method"], header["Mcp-Name"] = "2026-07-28", "tools/call", tool
	} else {
		header["Mcp-Session-Id"] = s.ID
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(`{"jsonrpc":"2.0","id":70,"method":"tools/call","params":`+params+`}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = s.Header.Clone()
	for name, value := range header {
		req.Header.Set(name, value)
	}
	return req
}

func TestAClientThatHangsUpFindsTheOutcomeUnderItsKey(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	for _, modern := range []bool{true, false} {
		dir := t.TempDir()
		marks, release := filepath.Join(dir, "marks"), filepath.Join(dir, "release")
		h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "post"))+"\nTENANTS\n", "",
			map[string]rig.TenantConfig{"acme": {Rego: rig.AllowAll}})
		s := h.OpenAs("acme", modern)
		arguments := fmt.Sprintf(`{"do":"await","until":%q}`, release)
		ctx, hangUp := context.WithCancel(t.Context())
		req := onceRequest(ctx, t, s, "k", "post", arguments)
		over := make(chan error, 1)
		go func() {
			resp, err := http.DefaultClient.Do(req)
			if err == nil { // the stream of the answer has begun
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			over <- err
		}()
		rig.Eventually(t, "the call is under way", func() string {
			if lines(t, marks) == 0 {
				return "not yet"
			}
			return ""
		})
		hangUp()
		if err := <-over; err == nil {
			t.Errorf("modern %v: it was answered before it hung up", modern)
		}
		again := make(chan repeated, 1)
		go func() {
			defer close(again)
			again <- once(t, s, "k", "post", arguments)
		}()
		rig.WriteFile(t, release, "")
		if got := <-again; got.code != "" || !got.given || lines(t, marks) != 1 {
			t.Errorf("modern %v: %+v, executed %d times", modern, got, lines(t, marks))
		}
	}
}

func TestAVetoBeatsWhatIsKeptUnderAKey(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	marks := filepath.Join(t.TempDir(), "marks")
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "post"), fmt.Sprintf(rig.Tool, "get"))+"\nTENANTS\n", "",
		map[string]rig.TenantConfig{"acme": {Rego: rig.AllowAll}})
	layer := filepath.Join(h.Dir, "tenants/acme/policies/own.rego")
	was := rig.ReadFile(t, layer)
	s := h.OpenAs("acme", true)
	say := func(when, rule string, want repeated) {
		t.Helper()
		rig.ReplaceFile(t, layer, was+rule)
		h.Reload(t)
		if got := once(t, s, "k", "post", `{"a":"secret"}`); got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	say("allowed", "", repeated{text: `{"a":"secret"}`})
	say("hidden", "\ndeny[\"a/post\"] contains \"no\"\n", repeated{code: "SB-CAP-001"})
	say("denied with these arguments", "\ndeny[\"a/post\"] contains \"no\" if input.call.arguments.a == \"secret\"\n", repeated{code: "SB-POL-001", text: denialText})
	say("allowed again", "", repeated{text: `{"a":"secret"}`, given: true})
	say("redacted by now", "\nobligations[\"a/post\"] contains {\"type\": \"redact\", \"fields\": [\"/content/0/text\"]}\n", repeated{text: "[redacted]", given: true})
	if n := lines(t, marks); n != 1 {
		t.Errorf("executed %d times", n)
	}
}

const denialText = "policy does not allow this call as it is, so it was not made. It may allow other arguments, or another time; do not try to get around it, and ask the person whom you work for if you need it (SB-POL-001)"

// The server dies in the middle of the call, so the outcome is unknown. Its claim stays: a repeat would execute the call twice.
func TestACallWithAKeyWhoseServerDiesIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	marks := filepath.Join(t.TempDir(), "marks")
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "post"), fmt.Sprintf(rig.Tool, "rest"))))
	posts := func() int { return strings.Count(rig.ReadFile(t, marks), "post\n") }
	rig.EachSession(t, dir, func(t *testing.T, name string, s rig.Session) {
		before := posts()
		for range 2 {
			rig.Eventually(t, "the server serves", func() string { return rig.Call(t, s, "rest", `{}`) })
			if got := once(t, s, name, "post", `{"do":"die"}`); got.code != "SB-EXEC-004" {
				t.Errorf("a call whose server died: %+v", got)
			}
		}
		if n := posts() - before; n != 1 {
			t.Errorf("the call was executed %d times", n)
		}
	})
}

func TestKeysAndLimitsOutliveAProcessThatIsKilled(t *testing.T) {
	rig.WatchRaces(t)
	law.Hold(t, law.NothingAckedLost)
	t.Parallel() // a lease has to run out
	marks := filepath.Join(t.TempDir(), "marks")
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "post"), fmt.Sprintf(rig.Tool, "rare"))+"\nTENANTS\n", "",
		map[string]rig.TenantConfig{"acme": {Rego: rig.AllowAll + "\nobligations[\"a/rare\"] contains {\"type\": \"rate_limit\", \"rate\": \"1/h\", \"burst\": 2}\n"}})
	const forever = `{"do":"await","until":"/nowhere"}`
	s := h.OpenAs("acme", true)
	if got := once(t, s, "done", "post", `{"a":1}`); got != (repeated{text: `{"a":1}`}) {
		t.Errorf("the first: %+v", got)
	}
	if got := rig.Call(t, s, "rare", `{}`); got != "" {
		t.Errorf("the first of two: %s", got)
	}
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	req := onceRequest(ctx, t, s, "begun", "post", forever)
	go func() {
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	rig.Eventually(t, "the call is under way", func() string {
		if lines(t, marks) < 3 {
			return "not yet"
		}
		return ""
	})
	h.Kill(t)
	s = h.OpenAs("acme", true)
	if got := once(t, s, "done", "post", `{"a":1}`); got != (repeated{text: `{"a":1}`, given: true}) {
		t.Errorf("what was done: %+v", got)
	}
	if got := once(t, s, "begun", "post", forever); got.code != "SB-EXEC-004" || got.given {
		t.Errorf("what was begun: %+v", got)
	}
	h.Kill(t)
	s = h.OpenAs("acme", false)
	if got := once(t, s, "begun", "post", forever); got.code != "SB-EXEC-004" {
		t.Errorf("what was begun, after another kill: %+v", got)
	}
	if one, two := rig.Call(t, s, "rare", `{}`), rig.Call(t, s, "rare", `{}`); one != "" || two != "SB-ROUT-002" {
		t.Errorf("the second and the third of two: %q, %q", one, two)
	}
	if n := lines(t, marks); n != 4 {
		t.Errorf("executed %d times, want 4:\n%s", n, rig.ReadFile(t, marks))
	}
}
