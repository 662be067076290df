package page_test

import (
	"cmp"
	"encoding/json"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/summit-switchboard/switchboard/internal/admin/trial"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A tryDesk is a page whose API offers one tool.
type tryDesk struct {
	*desk
	cookie  *http.Cookie
	first   string // the task that counts if none is named
	changes bool
	about   string // the tool's description
	bodies  []string
	calls   []string // the task and the tenant of each call
	status  int      // of the answer to a call
}

const trySchema = `{"type":"object","required":["text"],"properties":{"text":{"type":"string"},"n":{"type":"number"},"kind":{"enum":["a",2]},"deep":{"type":"boolean"},"filter":{"type":"object"},"<b>&\"":{"type":"string","description":"<script>alert(1)</script>\u202e"}}}`

func newTryDesk(t *testing.T) *tryDesk {
	t.Helper()
	d := &tryDesk{desk: newDesk(t, ""), status: http.StatusOK, first: "all"}
	d.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body := map[string]json.RawMessage{}
			_ = json.NewDecoder(r.Body).Decode(&body)
			d.bodies = append(d.bodies, string(body["arguments"])+" "+r.Header.Get("Idempotency-Key"))
			d.calls = append(d.calls, "task "+string(body["task"])+" of "+r.URL.Query().Get("tenant"))
			w.WriteHeader(d.status)
			_, _ = w.Write([]byte(`{"code":"SB-CAP-006","retryable":"later","detail":"it is being carried out"}`))
			return
		}
		tool := map[string]any{"name": "t", "server": "a", "tool": "t", "listed": "always", "changes": d.changes, "description": d.about}
		if r.URL.Query().Get("tool") == "t" {
			tool["input_schema"] = json.RawMessage(trySchema)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"tenant": cmp.Or(r.URL.Query().Get("tenant"), "acme"), "principal": "ann@page", "tasks": []string{"all"}, "task": cmp.Or(r.URL.Query().Get("task"), d.first), "tools": []any{tool}})
	})
	w := d.ask("POST", "/sign-in", "127.0.0.1:7422", url.Values{"key": {d.key}}.Encode(), "Origin", "http://127.0.0.1:7422", "Content-Type", form)
	d.cookie = w.Result().Cookies()[0]
	return d
}

func (d *tryDesk) open() string {
	return d.ask("GET", "/try?task=all&tool=t", "127.0.0.1:7422", "", "Cookie", d.cookie.Name+"="+d.cookie.Value).Body.String()
}

func (d *tryDesk) send(fields url.Values) (status int, to, page string) {
	w := d.ask("POST", "/try", "127.0.0.1:7422", fields.Encode(), "Origin", "http://127.0.0.1:7422", "Content-Type", form, "Cookie", d.cookie.Name+"="+d.cookie.Value)
	return w.Code, w.Header().Get("Location"), w.Body.String()
}

var hiddenInput = regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)

// hiddenIn returns the hidden fields of a page; of several with one name, the last before the text end.
func hiddenIn(page, end string) url.Values {
	page, _, _ = strings.Cut(page, end)
	fields := url.Values{}
	for _, f := range hiddenInput.FindAllStringSubmatch(page, -1) {
		fields.Set(f[1], html.UnescapeString(f[2]))
	}
	return fields
}

// tryScene shows a tool with the question before a call of it, and outcomes of calls: a result, a refusal and the beginning of a result.
func tryScene(t *testing.T) hostileScene {
	d := newDesk(t, "")
	cookie := d.signIn(t)
	offer := func(texts ...string) trial.TryOffer {
		next := inTurn(texts)
		field := func(kind string) map[string]any {
			return map[string]any{"type": kind, "title": next(), "description": next(), "default": next()}
		}
		choice := field("string")
		choice["enum"] = []string{next(), next() + " "}
		schema, _ := json.Marshal(map[string]any{"type": "object", "required": []string{"n"}, "properties": map[string]any{"1 " + next(): field("string"), "2 " + next(): field("object"), "3 " + next(): choice, "n": field("number")}, "title": next()})
		return trial.TryOffer{
			Tenant: switchboard.TenantID(next()), Principal: next(), Tasks: []string{"all"}, Task: "all", Starting: []string{next()}, Tools: []trial.TryTool{
				{Name: "t" + texts[0], Title: next(), Description: next(), Server: switchboard.ServerID(next()), Tool: next(), Listed: next(), Changes: true, Effects: []string{next()}, Schema: schema}, {Name: next() + " "},
			},
		}
	}
	outcome := func(address string, texts ...string) trial.TryOutcome {
		next := inTurn(texts)
		o := trial.TryOutcome{
			Tenant: switchboard.TenantID(next()), Principal: next(), Task: switchboard.TaskID(next()), Tool: next(), At: noon, Receipt: "n1/5", Request: "k-1",
			TryServing: trial.TryServing{Server: switchboard.ServerID(next()), ServedBy: next(), Tried: []trial.TryAttempt{{Tool: next(), Code: "SB-EXEC-004", Sent: true}}},
		}
		switch {
		case strings.HasPrefix(address, "/try/refused"):
			o.Refused = &trial.TryRefusal{Code: "SB-POL-001", Text: next(), Hint: next()}
		case strings.HasPrefix(address, "/try/cut"):
			o.Cut, o.Beginning = true, next()
		default:
			o.IsError = true
			o.Result, _ = json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text", "text": next()}, map[string]string{"type": next() + " x", "uri": next()}}, next(): next()})
		}
		return o
	}
	addresses := []string{"/try?tenant=acme&task=all", "/try/result?tenant=acme&task=all", "/try/refused?tenant=acme", "/try/cut?tenant=acme"}
	return hostileScene{addresses, hostileTexts(t, 300), func(t *testing.T, address string, texts ...string) string {
		t.Helper()
		request := requestOf(texts[0])
		request.State = approval.Approved
		call := route(map[string]any{"/v1/try": func() any { return offer(texts...) }, "/v1/approvals/k-1": request})
		d.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/v1/try/") {
				_ = json.NewEncoder(w).Encode(outcome(address, texts...))
				return
			}
			call.ServeHTTP(w, r)
		})
		if !strings.HasPrefix(address, "/try?") {
			return d.open(t, address+"&tool="+url.QueryEscape(texts[0]), cookie)
		}
		state := "tenant=acme&task=all&tool=" + url.QueryEscape("t"+texts[0])
		page := d.open(t, "/try?"+state, cookie)
		fields := hiddenIn(page, "Show the arguments as JSON")
		fields.Set("act", "call")
		fields.Set("json", "{}")
		fields.Set("at", state)
		w := d.ask("POST", "/try", host, fields.Encode(), append([]string{"Content-Type", form, "Origin", "http://" + host}, cookie...)...)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "Make this call?") {
			t.Fatalf("%q: the page does not ask: %d %s", texts, w.Code, w.Body)
		}
		return page + w.Body.String()
	}, ""}
}

// The fields of the form become JSON, as they are spelt. Empty ones are left out.
func TestTheFormOfAToolIsWrittenAsJSON(t *testing.T) {
	d := newTryDesk(t)
	page := d.open()
	if strings.Contains(page, "<script>alert") || !strings.Contains(page, `\u{202e}`) {
		t.Errorf("texts of the server are markup: %s", page)
	}
	for _, tt := range []struct {
		name   string
		fields map[string]string
		want   string // the JSON, or a part of the refusal
	}{
		{"nothing", nil, "{}"},
		{"texts and numbers", map[string]string{"text": "a\r\nb<\"", "n": "1.50"}, "{\n  \"text\": \"a\\nb<\\\"\",\n  \"n\": 1.50\n}"},
		{"line ends", map[string]string{"text": "\r\na\r\n\r\n"}, "{\n  \"text\": \"\\na\\n\\n\"\n}"},
		{"choices and JSON", map[string]string{"kind": "2", "deep": "true", "filter": ` {"x":[1]} `}, "{\n  \"kind\": 2,\n  \"deep\": true,\n  \"filter\": {\"x\":[1]}\n}"},
		{"a hostile name", map[string]string{`<b>&"`: "x"}, "{\n  \"<b>&\\\"\": \"x\"\n}"},
		{"no number", map[string]string{"n": "many"}, "n is no number"},
		{"no choice", map[string]string{"kind": `"z"`}, "kind is none of the values"},
		{"no JSON", map[string]string{"filter": "{"}, "filter is no JSON"},
	} {
		fields := hiddenIn(page, "Show the arguments as JSON")
		fields.Set("act", "write")
		for name, value := range tt.fields {
			fields.Set("argument "+name, value)
		}
		_, _, answer := d.send(fields)
		_, text, _ := strings.Cut(answer, `<textarea id="json" name="json" rows="12" spellcheck="false">`+"\n")
		text, _, _ = strings.Cut(text, "</textarea>")
		if text = html.UnescapeString(text); text != tt.want && (strings.HasPrefix(tt.want, "{") || !strings.Contains(answer, tt.want)) {
			t.Errorf("%s: %q, want %q", tt.name, text, tt.want)
		}
		for _, value := range tt.fields {
			if strings.Contains(tt.want, " is no") && !strings.Contains(answer, html.EscapeString(value)) && !strings.Contains(tt.name, "choice") {
				t.Errorf("%s: what was typed is not kept", tt.name)
			}
		}
	}
	if len(d.bodies) > 0 {
		t.Errorf("the tool was called with %q", d.bodies)
	}
}

// A call that may change something is made only after the question, about the tool as it is, and with the same key for each repeat.
func TestACallWithAnEffectAsksFirst(t *testing.T) {
	d := newTryDesk(t)
	d.changes = true
	fields := hiddenIn(d.open(), "Show the arguments as JSON")
	fields.Set("act", "call")
	fields.Set("json", `{"n":1.50}`)
	status, _, page := d.send(fields)
	if status != http.StatusOK || !strings.Contains(page, "Make this call?") || len(d.bodies) > 0 {
		t.Fatalf("%d, called with %q: %s", status, d.bodies, page)
	}
	yes := hiddenIn(page, "Yes, make the call")
	yes.Set("act", "make")
	d.about = "it does more now"
	if _, _, page = d.send(yes); !strings.Contains(page, "has changed since you were asked") || len(d.bodies) > 0 {
		t.Errorf("the tool has changed, called with %q: %s", d.bodies, page)
	}
	yes = hiddenIn(page, "Yes, make the call")
	yes.Set("act", "make")
	var places []string
	for range 2 {
		status, to, page := d.send(yes)
		if status != http.StatusSeeOther {
			t.Fatalf("%d %s", status, page)
		}
		places = append(places, to)
	}
	if len(d.bodies) != 2 || d.bodies[0] != d.bodies[1] || places[0] != places[1] || !strings.HasPrefix(d.bodies[0], `{"n":1.50} `) {
		t.Errorf("a form that is sent twice asks for %q, and leads to %q", d.bodies, places)
	}
	d.status = http.StatusConflict // while the first is carried out
	if status, to, _ := d.send(yes); status != http.StatusSeeOther || to != places[0] {
		t.Errorf("while the call is made: %d %s", status, to)
	}
	yes.Set("json", `{"n":2}`)
	if _, to, _ := d.send(yes); slices.Contains(places, to) {
		t.Error("a call with other arguments has the same key")
	}
	yes.Set("key", "short")
	if status, _, _ := d.send(yes); status != http.StatusBadRequest {
		t.Errorf("without a key: %d", status)
	}

	d.changes, d.bodies, d.status = false, nil, http.StatusOK
	fields.Set("json", `[1]`)
	if status, _, page := d.send(fields); status != http.StatusBadRequest || !strings.Contains(page, "no JSON object") || !strings.Contains(page, "[1]") {
		t.Errorf("a list as arguments: %d %s", status, page)
	}
	fields.Set("json", `{}`)
	if status, _, _ := d.send(fields); status != http.StatusSeeOther || len(d.bodies) != 1 {
		t.Errorf("a tool that only reads: %d, called with %q", status, d.bodies)
	}
}

// A form that was shown for the first task makes the call for this task, also if another task is the first one by then. A question about another task or
// tenant is another question.
func TestACallIsForTheTaskThatItsFormHasShown(t *testing.T) {
	d := newTryDesk(t)
	d.changes = true
	w := d.ask("GET", "/try?tool=t", "127.0.0.1:7422", "", "Cookie", d.cookie.Name+"="+d.cookie.Value)
	fields := hiddenIn(w.Body.String(), "Show the arguments as JSON")
	fields.Set("act", "call")
	fields.Set("json", "{}")
	d.first = "another"
	_, _, page := d.send(fields)
	yes := hiddenIn(page, "Yes, make the call")
	yes.Set("act", "make")
	for _, name := range []string{"task", "tenant"} {
		moved := maps.Clone(yes)
		moved.Set(name, "another")
		if _, _, page := d.send(moved); !strings.Contains(page, "has changed since you were asked") || len(d.bodies) > 0 {
			t.Errorf("the question was about another %s: called with %q: %s", name, d.bodies, page)
		}
	}
	if status, to, page := d.send(yes); status != http.StatusSeeOther || !strings.Contains(to, "task=all") || !strings.Contains(to, "tenant=acme") || !slices.Contains(d.calls, `task "all" of acme`) {
		t.Errorf("%d %s, called for %q: %s", status, to, d.calls, page)
	}
}

// A call goes on while its browser is led on. A stop waits for it, and ends it.
func TestAStopWaitsForACallFromThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTryDesk(t)
		api, ended := d.api, false
		d.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				<-r.Context().Done()
				ended = true
				return
			}
			api.ServeHTTP(w, r)
		})
		fields := hiddenIn(d.open(), "Show the arguments as JSON")
		fields.Set("act", "call")
		fields.Set("json", "{}")
		if status, to, page := d.send(fields); status != http.StatusSeeOther || !strings.HasPrefix(to, "/try/") || ended {
			t.Fatalf("%d %s, ended %t: %s", status, to, ended, page)
		}
		d.stop()
		d.work.Wait()
		if !ended {
			t.Error("the call goes on after the stop")
		}
	})
}
