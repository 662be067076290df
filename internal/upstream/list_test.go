package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// library is a server on stdio with all kinds. The variables MODERN, BARE (it declares nothing) and
// DENY (it grants no subscription) change its behaviour, and LIST, such as prompts/list=hang,
// breaks a list. Its tool returns the requests so far, or sends messages of the test.
func library(f *fake) {
	env := func(name string) bool { return os.Getenv(name) != "" }
	capabilities := `{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true}}`
	switch {
	case env("BARE"):
		capabilities = `{}`
	case env("DEAF"):
		capabilities = `{"resources":{}}`
	}
	asked := []string{}
	listeners := map[string]string{} // ids, by URI
	odd, how, _ := strings.Cut(os.Getenv("LIST"), "=")
	page := func(m *msg, member, item string) {
		cursor := ""
		if m.Params.Cursor != nil {
			cursor = *m.Params.Cursor
		}
		switch {
		case m.Method != odd:
			f.result(m.ID, fmt.Sprintf(`{%q:[%s]}`, member, item))
		case how == "fail":
			f.error(m.ID, -32000, "broken")
		case how == "junk":
			f.result(m.ID, `{"else":[]}`)
		case how == "odd":
			f.result(m.ID, fmt.Sprintf(`{%q:[{"name":"a","name":"b"},{"Name":"x","name":"y"},7,%s]}`, member, item))
		case how == "malformed":
			f.result(m.ID, fmt.Sprintf(`{%q:[{"name":"a","arguments":{}},{"name":"b","arguments":null},%s]}`, member, item))
		case how == "deep": // 62 and 900 levels, and the deepest item that fits in a list
			f.result(m.ID, fmt.Sprintf(`{%q:[%s,%s,%s,%s]}`, member, nested(62), nested(900), nested(61), item))
		case how == "abyss":
			f.result(m.ID, fmt.Sprintf(`{%q:[%s,%s]}`, member, nested(wire.MaxListDepth), item))
		case how == "pages" && cursor == "":
			f.result(m.ID, fmt.Sprintf(`{%q:[%s],"nextCursor":"2"}`, member, item))
		case how == "pages":
			f.result(m.ID, fmt.Sprintf(`{%q:[%s]}`, member, strings.ReplaceAll(item, "greet", "greet2")))
		case how == "endless":
			f.result(m.ID, fmt.Sprintf(`{%q:[%s],"nextCursor":"%sx"}`, member, item, cursor))
		}
	}
	f.serve(func(m *msg) bool {
		var more struct {
			Params struct {
				URI           string `json:"uri"`
				Notifications struct {
					Resources []string `json:"resourceSubscriptions"`
				} `json:"notifications"`
			} `json:"params"`
		}
		_ = json.Unmarshal(m.Raw, &more)
		if m.ID != nil && m.Method != "tools/call" {
			asked = append(asked, strings.TrimSpace(m.Method+" "+more.Params.URI+strings.Join(more.Params.Notifications.Resources, " ")))
		}
		switch m.Method {
		case "initialize":
			if env("MODERN") {
				return f.modern(m)
			}
			f.result(m.ID, `{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`,"serverInfo":{"name":"library","version":"1"}}`)
		case "server/discover":
			if !env("MODERN") {
				return false
			}
			f.result(m.ID, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":`+capabilities+`}`)
		case "resources/list":
			page(m, "resources", `{"uri":"x:1"}`)
		case "resources/templates/list":
			page(m, "resourceTemplates", `{"uriTemplate":"x:{n}"}`)
		case "prompts/list":
			page(m, "prompts", `{"name":"greet"}`)
		case "resources/subscribe", "resources/unsubscribe":
			if env("DENY") {
				f.error(m.ID, -32002, "token is "+os.Getenv("TOKEN"))
				return true
			}
			f.result(m.ID, `{}`)
		case "subscriptions/listen":
			granted := `{}`
			if uris := more.Params.Notifications.Resources; len(uris) > 0 && !env("DENY") {
				listeners[uris[0]] = string(m.ID)
				quoted, _ := json.Marshal(uris)
				granted = `{"resourceSubscriptions":` + string(quoted) + `}`
			}
			f.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":%s,"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, granted, m.ID)
		case "tools/call":
			if say, ok := m.Params.Arguments["say"].(string); ok {
				for uri, id := range listeners {
					say = strings.ReplaceAll(say, "ID("+uri+")", id)
				}
				f.say("%s", say)
			}
			text, _ := json.Marshal(asked)
			f.result(m.ID, `{"asked":`+string(text)+`}`)
			if m.Params.Arguments["die"] != nil {
				os.Exit(0)
			}
		default:
			return false
		}
		return true
	})
}

func init() { fakes["library"] = library }

// nested returns an item with that many levels.
func nested(levels int) string {
	return `{"name":"deep","a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
}

// methodsAsked calls the library's tool with the arguments, and returns the requests that the
// server has received so far.
func methodsAsked(t *testing.T, f *Fleet, arguments string) []string {
	t.Helper()
	result, err := f.Call(t.Context(), echoCall("one", arguments))
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Asked []string }
	if err := json.Unmarshal(result.JSON, &got); err != nil {
		t.Fatal(err)
	}
	return got.Asked
}

func count(list []string, what string) (n int) {
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}

func said(method string) string {
	line, _ := json.Marshal(`{"jsonrpc":"2.0","method":"` + method + `"}`)
	return `{"say":` + string(line) + `}`
}

func TestAFailedListDoesNotRemoveTheOthers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		list    string
		prompts string
		note    string
	}{
		{"prompts/list=fail", "", "its prompts could not be listed"},
		{"prompts/list=hang", "", "its prompts could not be listed"},
		{"prompts/list=junk", "", "holds no list of prompts"},
		{"prompts/list=odd", `{"name":"greet"}`, "3 of its prompts are left out"},
		{"prompts/list=malformed", `{"name":"b"} {"name":"greet"}`, `1 of its prompts are left out, because clients would refuse the whole list: "a" (arguments: is an object; want a list)`},
		{"prompts/list=deep", nested(61) + ` {"name":"greet"}`, "2 of its prompts are left out"},
		{"prompts/list=abyss", "", "its prompts could not be listed"},
		{"prompts/list=pages", `{"name":"greet"} {"name":"greet2"}`, ""},
	} {
		t.Run(tt.list, func(t *testing.T) {
			t.Parallel()
			f := readyFleet(t, Options{}, stdioFake("one", "library", "LIST="+tt.list))
			s, o := status(t, f, "one"), f.Offers()[0]
			if s.State != StateReady || s.LastFailure != nil || s.Tools != 2 || s.Resources != 2 {
				t.Errorf("status %+v", s)
			}
			var got []string
			for _, p := range o.Prompts {
				got = append(got, string(p))
			}
			if strings.Join(got, " ") != tt.prompts {
				t.Errorf("prompts %s", got)
			}
			if !strings.Contains(s.Note, tt.note) || tt.note == "" && s.Note != "" {
				t.Errorf("note %q, want %q", s.Note, tt.note)
			}
		})
	}
}

// A release before package shape kept offers as they were sent.
func TestARememberedOfferIsRepairedBeforeItsServerAnswers(t *testing.T) {
	f := openFleet(t, Options{Recall: func(*switchboard.Server) (ServerMemory, bool) {
		return ServerMemory{Offer: switchboard.Offer{Tools: [][]byte{[]byte(`{"name":"t","inputSchema":{}}`)}, Prompts: [][]byte{[]byte(`{"name":"p","arguments":null}`)}}}, true
	}}, switchboard.Server{ID: "one", Transport: switchboard.TransportStdio, Command: []string{"/is-not-there"}})
	o := f.Offers()[0]
	if len(o.Tools) != 1 || string(o.Tools[0]) != `{"name":"t","inputSchema":{"type":"object"}}` || len(o.Prompts) != 1 || string(o.Prompts[0]) != `{"name":"p"}` {
		t.Errorf("tools %s, prompts %s", o.Tools, o.Prompts)
	}
}

func TestOnlyDeclaredKindsAreListed(t *testing.T) {
	f := readyFleet(t, Options{}, stdioFake("one", "library", "BARE=1"))
	for _, what := range methodsAsked(t, f, `{}`) {
		if strings.HasPrefix(what, "resources/") || strings.HasPrefix(what, "prompts/") {
			t.Errorf("requested %s", what)
		}
	}
	c := echoCall("one", "")
	c.Method, c.Tool, c.Target = "resources/subscribe", nil, "x:1"
	if _, err := f.Subscribe(t.Context(), c, func(string) {}); err == nil || count(methodsAsked(t, f, `{}`), "resources/subscribe x:1") > 0 {
		t.Errorf("subscribed: %v", err)
	}
}

func TestAChangeListsOnlyItsOwnKindAgain(t *testing.T) {
	t.Parallel()
	lists := []string{"tools/list", "resources/list", "resources/templates/list", "prompts/list"}
	for method, again := range map[string][]string{
		"notifications/tools/list_changed":     {"tools/list"},
		"notifications/resources/list_changed": {"resources/list", "resources/templates/list"},
		"notifications/prompts/list_changed":   {"prompts/list"},
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			f := readyFleet(t, Options{}, stdioFake("one", "library", "LIST=prompts/list=fail"))
			methodsAsked(t, f, said(method))
			var got []string
			wait.Until(t, "it is listed again", func() bool {
				got = methodsAsked(t, f, `{}`)
				return !slices.ContainsFunc(again, func(list string) bool { return count(got, list) < 2 })
			})
			for _, list := range lists {
				if want := 1 + count(again, list); count(got, list) != want {
					t.Errorf("%s was asked %d times, want %d", list, count(got, list), want)
				}
			}
			if s := status(t, f, "one"); s.Tools != 2 || s.Resources != 2 || !strings.Contains(s.Note, "prompts could not") {
				t.Errorf("kinds that were not listed again are lost: %+v", s)
			}
		})
	}
}

// An updateLog collects the updates of a subscriber.
type updateLog struct {
	mu   sync.Mutex
	uris []string
}

func (u *updateLog) add(uri string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.uris = append(u.uris, uri)
}

func (u *updateLog) take() (uris []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	uris, u.uris = u.uris, nil
	return uris
}

func (u *updateLog) await(t *testing.T, want ...string) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("updates %q", want), func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return len(u.uris) >= len(want)
	})
	if got := u.take(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func subscribeTo(t *testing.T, f *Fleet, uri string) (*updateLog, func()) {
	t.Helper()
	c := echoCall("one", "")
	c.Method, c.Tool, c.Target, c.Params = "resources/subscribe", nil, uri, nil
	var u updateLog
	stop, err := f.Subscribe(t.Context(), c, u.add)
	if err != nil {
		t.Fatalf("%s: %v", uri, err)
	}
	t.Cleanup(stop)
	return &u, stop
}

// update makes the library announce an update of the URI, to the subscriber of subscribed if it is
// modern.
func update(t *testing.T, f *Fleet, modern bool, subscribed, uri string) {
	t.Helper()
	meta := ""
	if modern {
		meta = `,"_meta":{"io.modelcontextprotocol/subscriptionId":ID(` + subscribed + `)}`
	}
	line, _ := json.Marshal(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `"` + meta + `}}`)
	methodsAsked(t, f, `{"say":`+string(line)+`}`)
}

func TestUpdatesReachEachSubscriberOnce(t *testing.T) {
	for _, env := range []string{"LEGACY=1", "MODERN=1"} {
		t.Run(env, func(t *testing.T) {
			modern := env == "MODERN=1"
			f := readyFleet(t, Options{}, stdioFake("one", "library", env))
			if modern { // each has its own stream
				before, _ := subscribeTo(t, f, "x:1")
				defer func() {
					if got := before.take(); got != nil {
						t.Errorf("it got %q, which was for another subscriber", got)
					}
				}()
			}
			first, stopFirst := subscribeTo(t, f, "x:1")
			other, _ := subscribeTo(t, f, "x:2")
			if !modern { // all subscribers share a stream
				again, stopAgain := subscribeTo(t, f, "x:1")
				if got := methodsAsked(t, f, `{}`); count(got, "resources/subscribe x:1") != 1 {
					t.Errorf("two subscriptions are not one: %q", got)
				}
				update(t, f, modern, "x:1", "x:1")
				again.await(t, "x:1")
				stopAgain()
			} else {
				update(t, f, modern, "x:1", "x:1")
			}
			first.await(t, "x:1")
			update(t, f, modern, "x:1", "x:1/part")
			first.await(t, "x:1/part")
			update(t, f, modern, "x:2", "x:2")
			other.await(t, "x:2")
			if got := methodsAsked(t, f, `{}`); count(got, "resources/unsubscribe x:1") != 0 {
				t.Errorf("after one subscription ended, the other gets no updates: %q", got)
			}
			stopFirst()
			if !modern {
				wait.Until(t, "the server is told", func() bool { return count(methodsAsked(t, f, `{}`), "resources/unsubscribe x:1") == 1 })
			}
			update(t, f, modern, "x:1", "x:1")
			update(t, f, modern, "x:2", "x:2")
			other.await(t, "x:2")
			if got := first.take(); got != nil {
				t.Errorf("after its end it got %q", got)
			}
			if got := other.take(); got != nil {
				t.Errorf("the other call got %q besides its own notifications", got)
			}
		})
	}
}

func TestASubscriptionOutlivesTheServersProcess(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"LEGACY=1", "MODERN=1"} {
		t.Run(env, func(t *testing.T) {
			f := readyFleet(t, Options{}, stdioFake("one", "library", env))
			u, _ := subscribeTo(t, f, "x:1")
			methodsAsked(t, f, `{"die":1}`)
			u.await(t, "x:1") // updates may have been missed
			update(t, f, env == "MODERN=1", "x:1", "x:1")
			u.await(t, "x:1")
		})
	}
}

func TestASubscriptionOutlivesANewConfigurationOfItsServer(t *testing.T) {
	was := stdioFake("one", "library")
	f := readyFleet(t, Options{}, was)
	u, _ := subscribeTo(t, f, "x:1")
	f.Set(nil)
	f.Set([]switchboard.Server{stdioFake("one", "library", "OTHER=1")})
	u.await(t, "x:1")
	update(t, f, false, "x:1", "x:1")
	u.await(t, "x:1")
}

func TestASubscriptionThatIsNotGrantedIsRefused(t *testing.T) {
	c := echoCall("one", "")
	c.Method, c.Tool, c.Target, c.Params = "resources/subscribe", nil, "x:1", nil
	for _, env := range []string{"LEGACY=1", "MODERN=1"} {
		f := readyFleet(t, Options{}, stdioFake("one", "library", env, "DENY=1", "TOKEN=s3cret-s3cret-s3cret"))
		ctx, cancel := context.WithTimeout(t.Context(), subscribeTimeout/2)
		_, err := f.Subscribe(ctx, c, func(string) {})
		cancel()
		switch answered, ok := errors.AsType[*switchboard.ServerError](err); {
		case err == nil || ctx.Err() == context.DeadlineExceeded:
			t.Errorf("%s: %v", env, err)
		case env == "LEGACY=1" && (!ok || !strings.Contains(string(answered.Object), "-32002") || strings.Contains(string(answered.Object), "s3cret")):
			t.Errorf("%s: %v", env, err)
		}
	}
	f := readyFleet(t, Options{}, stdioFake("one", "library", "DEAF=1"))
	if _, err := f.Subscribe(t.Context(), c, func(string) {}); err == nil || count(methodsAsked(t, f, `{}`), "resources/subscribe x:1") > 0 {
		t.Errorf("a server without subscriptions got a subscription: %v", err)
	}
	c.Server = "none"
	began := time.Now()
	if _, err := f.Subscribe(t.Context(), c, func(string) {}); err == nil || time.Since(began) > subscribeTimeout/2 {
		t.Errorf("for an unknown server: %v", err)
	}
}
