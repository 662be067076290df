package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A tokenDesk gives each principal a token such as "ann-1"; after a refusal the next one is "ann-2". Switchboard's own are "own-1" and so on.
// A principal without an entry has to connect first.
type tokenDesk struct {
	mu      sync.Mutex
	numbers map[string]uint64
	last    map[string]uint64 // number of the last token of those who get no further one
	refused []string          // challenges
}

func newTokenDesk(owners ...string) *tokenDesk {
	d := &tokenDesk{numbers: map[string]uint64{}, last: map[string]uint64{}}
	for _, o := range owners {
		d.numbers[o] = 1
	}
	return d
}

func ownerName(p *switchboard.Principal) string {
	if p == nil {
		return "own"
	}
	return p.ID
}

func (d *tokenDesk) Held(p *switchboard.Principal) (link.ShownToken, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := ownerName(p)
	n := d.numbers[name]
	if n == 0 || d.last[name] != 0 && n > d.last[name] {
		return link.ShownToken{}, false
	}
	return link.ShownToken{Token: switchboard.NewSecret(fmt.Sprintf("%s-%d", name, n)), Generation: link.TokenGeneration{Tokens: n}}, true
}

func (d *tokenDesk) Get(_ context.Context, p *switchboard.Principal) (link.ShownToken, error) {
	if c, ok := d.Held(p); ok {
		return c, nil
	}
	e := switchboard.Refuse(switchboard.CodeConnectFirst, "%s has to connect first", ownerName(p))
	e.Hint = "connect " + ownerName(p)
	return link.ShownToken{}, e
}

func (d *tokenDesk) Refused(p *switchboard.Principal, c link.ShownToken, challenge []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused = append(d.refused, strings.Join(challenge, "|"))
	if name := ownerName(p); d.numbers[name] == c.Generation.Tokens {
		d.numbers[name]++
	}
}

// Demanded implements link.Credentials.
func (d *tokenDesk) Demanded(p *switchboard.Principal, _ link.ShownToken, challenge []string) *switchboard.Error {
	if !strings.Contains(strings.Join(challenge, "|"), "insufficient_scope") {
		return nil
	}
	return &switchboard.Error{Code: switchboard.CodeConnectFirst, Unsent: true, Text: ownerName(p) + " has to connect again"}
}

func (d *tokenDesk) connect(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.numbers[name]++
	delete(d.last, name)
}

func (d *tokenDesk) options() Options {
	return Options{Credentials: func(*switchboard.Server) link.Credentials { return d }}
}

// demanding returns a site of the era that takes only tokens that takes accepts.
func demanding(t *testing.T, era link.Era, challenge string, takes func(token string, m *msg) bool) (*site, switchboard.Server) {
	s := newSite(t, era, func(w http.ResponseWriter, r *http.Request, m *msg) bool {
		if token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); !takes(token, m) {
			if challenge != "" {
				w.Header().Set("WWW-Authenticate", challenge)
			}
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	})
	cfg := s.server()
	cfg.Headers, cfg.Share = nil, switchboard.SharePrincipal
	cfg.Credential.Kind = switchboard.CredentialUser
	return s, cfg
}

const invalidToken = `Bearer error="invalid_token", resource_metadata="https://example.com/x"`

func TestEachRequestCarriesTheTokenOfWhoMadeIt(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	for _, era := range eras {
		t.Run(string(era), func(t *testing.T) {
			site, cfg := demanding(t, era, invalidToken, func(string, *msg) bool { return true })
			f := readyFleet(t, newTokenDesk("own", "ann", "bob").options(), cfg)
			for i, who := range []string{"ann", "bob", "ann", "bob"} {
				c := echoCall("one", fmt.Sprintf(`{"n":%d}`, i))
				c.Principal.ID = who
				if _, err := f.Call(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			f.Close(t.Context())
			var callers []string
			of := map[string]string{} // the token of each session
			for _, r := range site.requests("POST") {
				token := r.header.Get("Authorization")
				if session := r.header.Get("Mcp-Session-Id"); session != "" && of[session] == "" {
					of[session] = token
				} else if session != "" && of[session] != token {
					t.Errorf("a session has requests of %q and of %q", of[session], token)
				}
				if r.msg.Method == "tools/call" {
					callers = append(callers, token)
				}
				if r.msg.Method == "tools/list" && token != "Bearer own-1" {
					t.Errorf("the list was requested with %q", token)
				}
			}
			if want := []string{"Bearer ann-1", "Bearer bob-1", "Bearer ann-1", "Bearer bob-1"}; !slices.Equal(callers, want) {
				t.Errorf("the calls carried %q", callers)
			}
			for _, r := range append(site.requests("DELETE"), site.requests("GET")...) {
				if session := r.header.Get("Mcp-Session-Id"); r.header.Get("Authorization") != of[session] {
					t.Errorf("%s of a session of %q carries %q", r.verb, of[session], r.header.Get("Authorization"))
				}
			}
		})
	}
}

func TestACallIsRepeatedOnceWithAnotherTokenIfTheServerRefusesTheFirst(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	for _, era := range eras {
		for _, tt := range []struct {
			name, challenge string
			takes           string // the token of ann that the server takes
			last            uint64 // of ann's tokens; 0 means without end
			want            switchboard.Code
			unsent          bool
			sent            int
		}{
			{"it takes the next one", invalidToken, "ann-2", 0, "", false, 2},
			{"it takes none", invalidToken, "", 0, switchboard.CodeConnectFirst, true, 2},
			{"ann has no other one", invalidToken, "", 1, switchboard.CodeConnectFirst, true, 1},
			{"the answer is no challenge for a token", `Basic realm="x"`, "ann-2", 0, switchboard.CodeServerFailed, false, 1},
			{"the answer is no challenge", "", "ann-2", 0, switchboard.CodeServerFailed, false, 1},
		} {
			t.Run(string(era)+" "+tt.name, func(t *testing.T) {
				site, cfg := demanding(t, era, tt.challenge, func(token string, m *msg) bool {
					return m == nil || m.Method != "tools/call" || token == tt.takes
				})
				desk := newTokenDesk("own", "ann")
				desk.last["ann"] = tt.last
				f := readyFleet(t, desk.options(), cfg)
				_, err := f.Call(t.Context(), echoCall("one", "{}"))
				refused, _ := errors.AsType[*switchboard.Error](err)
				if err == nil && tt.want != "" || err != nil && (refused == nil || refused.Code != tt.want || refused.Unsent != tt.unsent || refused.ServerFailed) {
					t.Errorf("error %#v, want %q", err, tt.want)
				}
				if n := len(site.requests("tools/call")); n != tt.sent {
					t.Errorf("%d calls were sent, want %d", n, tt.sent)
				}
				for _, said := range desk.refused {
					if said != tt.challenge {
						t.Errorf("the challenge is %q", said)
					}
				}
			})
		}
	}
}

func TestACallWhoseTokenIsRefusedSaysWhatToDo(t *testing.T) {
	for _, era := range eras {
		for last, hint := range map[uint64]string{0: "call it again", 1: "connect ann", 2: "connect ann"} {
			_, cfg := demanding(t, era, invalidToken, func(_ string, m *msg) bool { return m == nil || m.Method != "tools/call" })
			desk := newTokenDesk("own", "ann")
			desk.last["ann"] = last
			f := readyFleet(t, desk.options(), cfg)
			_, err := f.Call(t.Context(), echoCall("one", "{}"))
			if refused, _ := errors.AsType[*switchboard.Error](err); refused == nil || !strings.Contains(refused.Hint, hint) {
				t.Errorf("%s, ann has %d tokens: %#v, want the hint %q", era, last, err, hint)
			}
		}
	}
}

// A describedDesk has no tokens, and says after a refusal that the server wants another kind of token.
type describedDesk struct{ *tokenDesk }

func (describedDesk) Held(*switchboard.Principal) (link.ShownToken, bool) {
	return link.ShownToken{}, true
}

func (d describedDesk) Get(context.Context, *switchboard.Principal) (link.ShownToken, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.refused) == 0 {
		return link.ShownToken{}, nil
	}
	e := switchboard.Refuse(switchboard.CodeServerFailed, "it does not say where to sign in")
	e.Hint = "write it into headers"
	return link.ShownToken{}, e
}

func TestTheOperatorOfAServerThatRefusesItsTokensIsToldWhatToDo(t *testing.T) {
	for _, era := range eras {
		for _, tt := range []struct {
			name   string
			desk   link.Credentials
			remedy string
		}{
			{"each new token is refused", newTokenDesk("own"), "look at credential in the row of server one"},
			{"it wants another kind of token", describedDesk{newTokenDesk()}, "write it into headers"},
		} {
			_, cfg := demanding(t, era, invalidToken, func(string, *msg) bool { return false })
			f := openFleet(t, Options{Credentials: func(*switchboard.Server) link.Credentials { return tt.desk }}, cfg)
			wait.Until(t, "the failure is recorded", func() bool { return status(t, f, "one").LastFailure != nil })
			if why := status(t, f, "one").LastFailure; !strings.Contains(why.Remedy, tt.remedy) || why.NeedsConnection {
				t.Errorf("%s, %s: %+v", era, tt.name, why)
			}
		}
	}
}

// demandingScope returns a site of the era that answers 403 to the requests of the method that do not have the token.
func demandingScope(t *testing.T, era link.Era, challenge, method, token string) (*site, switchboard.Server) {
	s := newSite(t, era, func(w http.ResponseWriter, r *http.Request, m *msg) bool {
		if m == nil || m.Method != method || r.Header.Get("Authorization") == "Bearer "+token {
			return false
		}
		w.Header().Set("WWW-Authenticate", challenge)
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	cfg := s.server()
	cfg.Headers, cfg.Share = nil, switchboard.SharePrincipal
	cfg.Credential.Kind = switchboard.CredentialUser
	return s, cfg
}

const insufficientScope = `Bearer error="insufficient_scope", scope="write"`

func TestACallWithTooFewScopesIsNotRepeatedAndSaysToConnectAgain(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	for _, era := range eras {
		for _, tt := range []struct {
			challenge string
			want      switchboard.Code
			unsent    bool
		}{
			{insufficientScope, switchboard.CodeConnectFirst, true},
			{invalidToken, switchboard.CodeServerFailed, false},
		} {
			site, cfg := demandingScope(t, era, tt.challenge, "tools/call", "ann-2")
			desk := newTokenDesk("own", "ann")
			f := readyFleet(t, desk.options(), cfg)
			_, err := f.Call(t.Context(), echoCall("one", "{}"))
			if refused, _ := errors.AsType[*switchboard.Error](err); refused == nil || refused.Code != tt.want || refused.Unsent != tt.unsent || refused.ServerFailed {
				t.Errorf("%s, %s: %#v", era, tt.challenge, err)
			}
			if n := len(site.requests("tools/call")); n != 1 {
				t.Errorf("%s, %s: %d calls were sent", era, tt.challenge, n)
			}
			desk.connect("ann")
			if _, err := f.Call(t.Context(), echoCall("one", "{}")); err != nil {
				t.Errorf("%s, %s: with another token: %v", era, tt.challenge, err)
			}
		}
	}
}

func TestAServerWhoseListWantsMoreScopesNeedsAConnection(t *testing.T) {
	for _, era := range eras {
		site, cfg := demandingScope(t, era, insufficientScope, "tools/list", "own-2")
		desk := newTokenDesk("own")
		f := openFleet(t, desk.options(), cfg)
		awaitState(t, f, "one", StateNeedsConnection)
		if st := status(t, f, "one"); !strings.Contains(st.LastFailure.Message, "own has to connect again") {
			t.Errorf("%s: %+v", era, st.LastFailure)
		}
		if n := len(site.requests("tools/list")); n != 1 {
			t.Errorf("%s: the list was requested %d times", era, n)
		}
		desk.connect("own")
		awaitState(t, f, "one", StateReady)
	}
}

func TestACallWithoutAConnectionOpensNone(t *testing.T) {
	for _, era := range eras {
		site, cfg := demanding(t, era, invalidToken, func(token string, _ *msg) bool { return token != "" })
		f := readyFleet(t, newTokenDesk("own").options(), cfg)
		before := len(site.requests("POST"))
		_, err := f.Call(t.Context(), echoCall("one", "{}"))
		refused, ok := errors.AsType[*switchboard.Error](err)
		if !ok || refused.Code != switchboard.CodeConnectFirst || !refused.Unsent || refused.ServerFailed {
			t.Errorf("%s: %#v", era, err)
		}
		if n := len(site.requests("POST")) - before; n != 0 {
			t.Errorf("%s: %d requests were sent", era, n)
		}
	}
}

func TestAServerThatDemandsATokenNeedsAConnectionAndIsUpAtOnceWhenItIsMade(t *testing.T) {
	for _, era := range eras {
		_, cfg := demanding(t, era, `Bearer resource_metadata="https://example.com/x"`, func(token string, _ *msg) bool { return strings.HasPrefix(token, "own-") })
		desk := newTokenDesk()
		f := openFleet(t, desk.options(), cfg)
		awaitState(t, f, "one", StateNeedsConnection)
		if st := status(t, f, "one"); !st.LastFailure.NeedsConnection || !strings.Contains(st.LastFailure.Message, "own has to connect first") || !st.NextAttempt.IsZero() {
			t.Errorf("%s: %+v %+v", era, st, st.LastFailure)
		}
		desk.connect("own")
		awaitState(t, f, "one", StateReady)
	}
}

// The stream only announces changes. Calls and lists work without it, so a refusal of the stream alone says nothing about the token.
func TestAServerThatRefusesOnlyItsStreamNeedsNoConnection(t *testing.T) {
	site, cfg := demanding(t, link.EraLegacy, invalidToken, func(_ string, m *msg) bool { return m != nil })
	desk := newTokenDesk("own", "ann")
	desk.last["own"] = 1 // a refusal of this token would leave none
	f := readyFleet(t, desk.options(), cfg)
	if n := len(site.requests("GET")); n == 0 {
		t.Error("no stream was asked for")
	}
	if _, err := f.Call(t.Context(), echoCall("one", "{}")); err != nil {
		t.Error(err)
	}
	st := status(t, f, "one")
	desk.mu.Lock()
	defer desk.mu.Unlock()
	if st.State != StateReady || len(desk.refused) > 0 {
		t.Errorf("%+v; refused: %q", st, desk.refused)
	}
}

func TestShutEndsTheConnectionsOfOnePrincipalAlone(t *testing.T) {
	site, cfg := demanding(t, link.EraLegacy, invalidToken, func(string, *msg) bool { return true })
	f := readyFleet(t, newTokenDesk("own", "ann", "bob").options(), cfg)
	call := func(who string) string {
		c := echoCall("one", "{}")
		c.Principal.ID = who
		if _, err := f.Call(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		calls := site.requests("tools/call")
		return calls[len(calls)-1].header.Get("Mcp-Session-Id")
	}
	ann := call("ann")
	call("bob")
	f.Shut("one", &switchboard.Principal{Tenant: "acme", ID: "ann"})
	if now := call("ann"); now == ann {
		t.Error("ann's session is still in use")
	}
	wait.Until(t, "a session is ended", func() bool { return len(site.requests("DELETE")) > 0 })
	for _, r := range site.requests("DELETE") {
		if id := r.header.Get("Mcp-Session-Id"); id != ann {
			t.Errorf("session %s was ended; ann's was %s", id, ann)
		}
	}
}
