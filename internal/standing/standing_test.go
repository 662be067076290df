package standing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// fakeRequests keeps one request, with the arguments {"to":"ops@x.org","body":"hello"}.
type fakeRequests struct{ one *approval.Request }

func (f fakeRequests) Find(_ context.Context, tenant switchboard.TenantID, id string) (*approval.Request, error) {
	if tenant != f.one.Asker.Tenant || id != f.one.ID() {
		return nil, approval.ErrNoRequest
	}
	return f.one, nil
}

func (f fakeRequests) Kept(_ context.Context, r *approval.Request) (approval.KeptCall, error) {
	if !r.StateAt(time.Now()).Open() {
		return approval.KeptCall{}, approval.ErrNoRequest
	}
	return approval.KeptCall{Params: []byte(`{"name":"send","arguments":{"to":"ops@x.org","body":"hello"}}`)}, nil
}

// yesWorld is a Yeskeeper with everything around it.
type yesWorld struct {
	*Yeskeeper
	t        *testing.T
	request  *approval.Request
	settings switchboard.ApprovalSettings
	rules    approval.DecideRules
	offices  map[string]bool // who is an approver
	veto     func(by *switchboard.Officer, c *switchboard.Call) error
}

const mailTests = `{"/to": {"in": ["ops@x.org"]}, "/body": "any"}`

func newYesWorld(t *testing.T, s Store) *yesWorld {
	t.Helper()
	w := &yesWorld{t: t, settings: switchboard.ApprovalSettings{Standing: 8 * time.Hour}, offices: map[string]bool{"ann": true, "ben": true}}
	rule := switchboard.AskingRule{Layer: "operator", File: "mail.rego", Line: 3, Digest: "sha256:1"}
	w.request = &approval.Request{
		Number: 1, Kind: approval.ForCall, Binding: "k3fqk3fqk3fqk3fqxx", Stored: approval.Pending, Asked: time.Now(), Until: time.Now().Add(time.Hour),
		Asker:  approval.Asker{Tenant: "acme", Principal: "ci", Auth: switchboard.AuthAPIKey, Task: "triage", Run: "r1"},
		Target: approval.Target{Method: "tools/call", Server: "mail", Tool: "send", Definition: "sha256:d", Arguments: "hmac:a"},
		Terms:  approval.AskTerms{Rules: []switchboard.AskingRule{rule}},
	}
	w.Yeskeeper = New(Options{
		Store: s, Requests: fakeRequests{w.request},
		Settings: func(switchboard.TenantID) switchboard.ApprovalSettings { return w.settings },
		Rules:    func(switchboard.TenantID) approval.DecideRules { return w.rules },
		Veto: func(_ context.Context, by *switchboard.Officer, _ *approval.Request, c *switchboard.Call, _ []byte) error {
			if w.veto == nil {
				return nil
			}
			return w.veto(by, c)
		},
		Officer: func(_ switchboard.TenantID, v *approval.Vote) (switchboard.Officer, error) {
			return *w.officer(v.By), nil
		},
	})
	return w
}

func (w *yesWorld) officer(id string) *switchboard.Officer {
	o := &switchboard.Officer{ID: id, Auth: switchboard.AuthPersonKey}
	if w.offices[id] {
		o.Offices = map[switchboard.TenantID][]switchboard.Office{"acme": {switchboard.OfficeApprover}}
	}
	return o
}

func (w *yesWorld) terms(uses int64) YesTerms {
	return YesTerms{Arguments: mustParse(w.t, mailTests), Uses: uses, For: time.Hour}
}

func (w *yesWorld) mustMake(uses int64) *GivenYes {
	w.t.Helper()
	g, err := w.Make(w.t.Context(), w.officer("ann"), "acme", w.request.ID(), w.terms(uses))
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

// call returns a call and what a person would be asked about it.
func (w *yesWorld) call(arguments string, change func(q *approval.Request)) (*switchboard.Call, *approval.Request) {
	q := *w.request
	q.Asker.Run, q.Target.Arguments = "r2", "hmac:b"
	q.Terms.Rules = slices.Clone(q.Terms.Rules)
	if change != nil {
		change(&q)
	}
	return &switchboard.Call{
		Principal: switchboard.Principal{Tenant: q.Asker.Tenant, ID: q.Asker.Principal}, Server: q.Target.Server, Method: q.Target.Method,
		Params: []byte(`{"name":"send","arguments":` + arguments + `}`),
	}, &q
}

// spare finds the standing yes of a call and uses it: nil if a person is asked.
func (w *yesWorld) spare(arguments, intent string, change func(q *approval.Request)) (*switchboard.Call, error) {
	w.t.Helper()
	c, q := w.call(arguments, change)
	yes, err := w.Find(w.t.Context(), c, q)
	if err != nil {
		w.t.Fatal(err)
	}
	if yes == nil {
		return nil, nil
	}
	if yes.Request != w.request.ID() || yes.Standing == "" {
		w.t.Errorf("%+v", yes)
	}
	c.Yes = yes
	return c, w.Use(w.t.Context(), c, intent)
}

const opsMail = `{"to":"ops@x.org","body":"another"}`

func TestAP11AStandingYesSparesTheAskingForItsUsesAndThenAPersonIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		w := newYesWorld(t, s)
		g := w.mustMake(3)
		for i := range 3 {
			if c, err := w.spare(opsMail, fmt.Sprint("i", i), nil); c == nil || err != nil {
				t.Fatalf("use %d: %v, %v", i+1, c, err)
			}
		}
		if c, err := w.spare(opsMail, "i3", nil); c != nil || err != nil {
			t.Errorf("uses+1: %v, %v", c, err)
		}
		time.Sleep(2 * useTTL / 3)
		if c, _ := w.spare(opsMail, "i4", nil); c != nil {
			t.Error("a use has come back by itself")
		}
		all, err := w.List(t.Context(), "acme")
		if err != nil || len(all) != 1 || all[0].Used != 3 || all[0].ID != g.ID {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

func TestAP11AStandingYesIsForNothingElse(t *testing.T) {
	s := store.NewMemory()
	defer s.Close() //nolint:errcheck // in memory
	w := newYesWorld(t, s)
	w.mustMake(5)
	for name, tt := range map[string]struct {
		arguments string
		change    func(q *approval.Request)
	}{
		"an argument that is not named": {`{"to":"ops@x.org","cc":"eve@y.org"}`, nil},
		"another value":                 {`{"to":"eve@y.org"}`, nil},
		"a value with ..":               {`{"to":"ops@x.org/../eve@y.org"}`, nil},
		"a name with ..":                {`{"to":"ops@x.org","..":{"to":"eve@y.org"}}`, nil},
		"another tenant":                {opsMail, func(q *approval.Request) { q.Asker.Tenant = "globex" }},
		"another principal":             {opsMail, func(q *approval.Request) { q.Asker.Principal = "eve" }},
		"another way to authenticate":   {opsMail, func(q *approval.Request) { q.Asker.Auth = switchboard.AuthLocal }},
		"another task":                  {opsMail, func(q *approval.Request) { q.Asker.Task = "other" }},
		"another tool":                  {opsMail, func(q *approval.Request) { q.Target.Tool = "delete" }},
		"another server":                {opsMail, func(q *approval.Request) { q.Target.Server = "mail2" }},
		"another definition":            {opsMail, func(q *approval.Request) { q.Target.Definition = "sha256:e" }},
		"no call of a tool":             {opsMail, func(q *approval.Request) { q.Target.Method = "prompts/get" }},
		"a capability":                  {opsMail, func(q *approval.Request) { q.Kind = approval.ForCapability }},
		"a rule that allows none":       {opsMail, func(q *approval.Request) { q.Terms.NoStanding = true }},
		"a quorum":                      {opsMail, func(q *approval.Request) { q.Terms.Quorum = 2 }},
		"a rule that asks for others":   {opsMail, func(q *approval.Request) { q.Terms.Who = []string{"cfo"} }},
		"a rule that asks now too": {opsMail, func(q *approval.Request) {
			q.Terms.Rules = append(q.Terms.Rules, switchboard.AskingRule{Layer: "tenant", Digest: "sha256:9"})
		}},
		"a rule that was edited":         {opsMail, func(q *approval.Request) { q.Terms.Rules[0].Digest = "sha256:2" }},
		"a rule of that text elsewhere":  {opsMail, func(q *approval.Request) { q.Terms.Rules[0].File = "other.rego" }},
		"the same rule of another layer": {opsMail, func(q *approval.Request) { q.Terms.Rules[0].Layer = "tenant" }},
	} {
		if c, err := w.spare(tt.arguments, "i "+name, tt.change); c != nil || err != nil {
			t.Errorf("%s: it is spared: %v", name, err)
		}
	}
	if c, err := w.spare(opsMail, "i", func(q *approval.Request) { q.Terms.Rules[0].Line = 9 }); c == nil || err != nil {
		t.Errorf("the rule has moved within its file: %v, %v", c, err)
	}
	if c, err := w.spare(opsMail, "j", func(q *approval.Request) { q.Terms.Rules = nil }); c == nil || err != nil {
		t.Errorf("fewer rules ask: %v, %v", c, err)
	}
}

func TestAStandingYesEndsWithItsTimeItsPersonItsSettingOrByAPerson(t *testing.T) {
	for name, end := range map[string]func(w *yesWorld, g *GivenYes){
		"its time":                 func(*yesWorld, *GivenYes) { time.Sleep(time.Hour) },
		"its person has no office": func(w *yesWorld, _ *GivenYes) { w.offices["ann"] = false },
		"the operator allows none": func(w *yesWorld, _ *GivenYes) { w.settings.Standing = 0 },
		"the operator allows less": func(w *yesWorld, _ *GivenYes) { w.settings.Standing = time.Minute; time.Sleep(2 * time.Minute) },
		"another person has ended it": func(w *yesWorld, g *GivenYes) {
			ended, err := w.End(w.t.Context(), w.officer("ben"), "acme", g.ID)
			if err != nil || ended.EndedBy != "ben" {
				w.t.Errorf("%+v, %v", ended, err)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := store.NewMemory()
			defer s.Close() //nolint:errcheck // in memory
			w := newYesWorld(t, s)
			g := w.mustMake(5)
			if c, err := w.spare(opsMail, "before", nil); c == nil || err != nil {
				t.Fatalf("%s: before: %v", name, err)
			}
			c, q := w.call(opsMail, nil) // it has found the yes, and uses it afterwards
			yes, err := w.Find(t.Context(), c, q)
			if err != nil || yes == nil {
				t.Fatal(err)
			}
			c.Yes = yes
			end(w, g)
			if own, ok := errors.AsType[*switchboard.Error](w.Use(t.Context(), c, "between")); !ok || own.Code != switchboard.CodeApprovalGone || !own.Unsent {
				t.Errorf("%s: a call that has found it before uses it: %v", name, own)
			}
			if c, err := w.spare(opsMail, "after", nil); c != nil || err != nil {
				t.Errorf("%s: it is spared: %v", name, err)
			}
		})
	}
}

func TestPolicyMayVetoEachUse(t *testing.T) {
	s := store.NewMemory()
	defer s.Close() //nolint:errcheck // in memory
	w := newYesWorld(t, s)
	w.mustMake(2)
	w.veto = func(by *switchboard.Officer, c *switchboard.Call) error {
		if by.ID != "ann" || c == nil {
			t.Errorf("policy is asked about %v and %v", by, c)
		}
		return switchboard.Refuse(switchboard.CodeDenied, "no")
	}
	if c, err := w.spare(opsMail, "i", nil); c == nil || err == nil {
		t.Errorf("%v, %v", c, err)
	}
	w.veto = nil
	for i := range 2 { // the veto has used nothing
		if c, err := w.spare(opsMail, fmt.Sprint(i), nil); c == nil || err != nil {
			t.Errorf("%v, %v", c, err)
		}
	}
}

func TestAUseIsGivenBackIfTheCallWasNotMade(t *testing.T) {
	s := store.NewMemory()
	defer s.Close() //nolint:errcheck // in memory
	w := newYesWorld(t, s)
	w.mustMake(1)
	for i := range 3 {
		c, err := w.spare(opsMail, fmt.Sprint(i), nil)
		if c == nil || err != nil {
			t.Fatalf("%d: %v, %v", i, c, err)
		}
		if err := w.GiveBack(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

// A silentStore makes one hold and loses the answer.
type silentStore struct {
	*store.Memory
	silent bool
}

func (s *silentStore) Hold(ctx context.Context, group, id string, terms store.HoldTerms, accounts ...store.Account) ([]store.AccountState, bool, error) {
	sums, held, err := s.Memory.Hold(ctx, group, id, terms, accounts...)
	if s.silent {
		s.silent = false
		return nil, false, store.ErrUnavailable
	}
	return sums, held, err
}

func TestAUseIsNotLostWithTheAnswerOfTheStore(t *testing.T) {
	s := &silentStore{Memory: store.NewMemory()}
	defer s.Close() //nolint:errcheck // in memory
	w := newYesWorld(t, s)
	w.mustMake(1)
	s.silent = true
	if c, err := w.spare(opsMail, "0", nil); c == nil || err == nil {
		t.Fatalf("%v, %v", c, err)
	}
	if c, err := w.spare(opsMail, "1", nil); c == nil || err != nil {
		t.Errorf("the call once more: %v, %v", c, err)
	}
}

func TestCallersRaceForTheLastUses(t *testing.T) {
	s := store.NewMemory()
	defer s.Close() //nolint:errcheck // in memory
	w := newYesWorld(t, s)
	w.mustMake(50)
	started := make(chan struct{})
	var used atomic.Int32
	var racing sync.WaitGroup
	for i := range 200 { // all have found it before one uses it
		c, q := w.call(opsMail, nil)
		var err error
		if c.Yes, err = w.Find(t.Context(), c, q); err != nil || c.Yes == nil {
			t.Fatal(c.Yes, err)
		}
		racing.Go(func() {
			<-started
			if w.Use(context.WithoutCancel(t.Context()), c, fmt.Sprint("i", i)) == nil {
				used.Add(1)
			}
		})
	}
	close(started)
	racing.Wait()
	if used.Load() != 50 {
		t.Errorf("%d uses of 50", used.Load())
	}
}

func TestWhoMayMakeAStandingYesAndFromWhat(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(w *yesWorld, terms *YesTerms)
		by     string
		code   switchboard.Code
		text   string
	}{
		"the operator allows none":    {func(w *yesWorld, _ *YesTerms) { w.settings.Standing = 0 }, "ann", switchboard.CodeNotAuthorized, "allows no standing yes"},
		"longer than allowed":         {func(_ *yesWorld, terms *YesTerms) { terms.For = 9 * time.Hour }, "ann", switchboard.CodeBadArguments, "9h0m0s"},
		"no time":                     {func(_ *yesWorld, terms *YesTerms) { terms.For = 0 }, "ann", switchboard.CodeBadArguments, "0s"},
		"no uses":                     {func(_ *yesWorld, terms *YesTerms) { terms.Uses = 0 }, "ann", switchboard.CodeBadArguments, "0 uses"},
		"too many uses":               {func(_ *yesWorld, terms *YesTerms) { terms.Uses = MaxUses + 1 }, "ann", switchboard.CodeBadArguments, "1001 uses"},
		"who is no approver":          {nil, "eve", switchboard.CodeNotAuthorized, "office approver"},
		"who has asked":               {func(w *yesWorld, _ *YesTerms) { w.offices["ci"] = true }, "ci", switchboard.CodeNotAuthorized, "yourself"},
		"whom the rule does not name": {func(w *yesWorld, _ *YesTerms) { w.request.Terms.Who = []string{"cfo"} }, "ann", switchboard.CodeNotAuthorized, "cfo"},
		"a quorum":                    {func(w *yesWorld, _ *YesTerms) { w.request.Terms.Quorum = 2 }, "ann", switchboard.CodeNotAuthorized, "2 persons"},
		"a rule that allows none":     {func(w *yesWorld, _ *YesTerms) { w.request.Terms.NoStanding = true }, "ann", switchboard.CodeNotAuthorized, "allows no standing yes"},
		"a capability":                {func(w *yesWorld, _ *YesTerms) { w.request.Kind = approval.ForCapability }, "ann", switchboard.CodeBadArguments, "not for the call of a tool"},
		"a prompt":                    {func(w *yesWorld, _ *YesTerms) { w.request.Target.Method = "prompts/get" }, "ann", switchboard.CodeBadArguments, "not for the call of a tool"},
		"a request that was refused":  {func(w *yesWorld, _ *YesTerms) { w.request.Stored = approval.Refused }, "ann", switchboard.CodeApprovalGone, "is refused"},
		"tests that do not fit it":    {func(w *yesWorld, terms *YesTerms) { terms.Arguments = mustParse(w.t, `{"/to": "any"}`) }, "ann", switchboard.CodeBadArguments, "do not pass"},
		"what policy vetoes": {func(w *yesWorld, _ *YesTerms) {
			w.veto = func(*switchboard.Officer, *switchboard.Call) error {
				return switchboard.Refuse(switchboard.CodeDenied, "not by you")
			}
		}, "ann", switchboard.CodeDenied, "not by you"},
	} {
		s := store.NewMemory()
		w := newYesWorld(t, s)
		terms := w.terms(5)
		if tt.change != nil {
			tt.change(w, &terms)
		}
		_, err := w.Make(t.Context(), w.officer(tt.by), "acme", w.request.ID(), terms)
		own, ok := errors.AsType[*switchboard.Error](err)
		if !ok || own.Code != tt.code || !strings.Contains(own.Text, tt.text) {
			t.Errorf("%s: %v", name, err)
		}
		if all, err := w.List(t.Context(), "acme"); len(all) != 0 || err != nil {
			t.Errorf("%s: there is %+v, %v", name, all, err)
		}
		_ = s.Close()
	}
	w := newYesWorld(t, store.NewMemory())
	if _, err := w.Make(t.Context(), w.officer("ann"), "globex", w.request.ID(), w.terms(1)); !errors.Is(err, approval.ErrNoRequest) {
		t.Errorf("a request of another tenant: %v", err)
	}
	g := w.mustMake(1)
	for name, by := range map[string]string{"the principal": "ci", "who holds no office": "eve"} {
		if _, err := w.End(t.Context(), w.officer(by), "acme", g.ID); err == nil {
			t.Errorf("%s ends it", name)
		}
	}
	for _, id := range []string{"", "x", strings.Repeat("x", 5000)} {
		if _, err := w.End(t.Context(), w.officer("ann"), "acme", id); !errors.Is(err, approval.ErrNoRequest) {
			t.Errorf("%.10q: %v", id, err)
		}
	}
}

func TestStandingYesesOfATenantAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		w := newYesWorld(t, s)
		for range maxKept {
			w.mustMake(1)
		}
		_, err := w.Make(t.Context(), w.officer("ann"), "acme", w.request.ID(), w.terms(1))
		if own, ok := errors.AsType[*switchboard.Error](err); !ok || own.Code != switchboard.CodeTooManyAsked {
			t.Errorf("%v", err)
		}
		time.Sleep(keepEnded + 2*time.Hour)
		if all, err := w.List(t.Context(), "acme"); len(all) != 0 || err != nil {
			t.Errorf("%d are left, %v", len(all), err)
		}
	})
}

// A record that was changed in the store, or that cannot be read, spares nothing.
func TestADamagedRecordSparesNothing(t *testing.T) {
	for _, data := range []string{`{`, `{}`, `{"id":"other"}`, `{"id":"ID","asker":{"tenant":"globex"}}`, `{"id":"ID","asker":{"tenant":"acme"},"arguments":{"/a":"all"}}`} {
		s := store.NewMemory()
		w := newYesWorld(t, s)
		g := w.mustMake(5)
		data = strings.ReplaceAll(data, "ID", g.ID)
		if _, err := s.Apply(t.Context(), store.Change{Group: groupOf("acme"), Writes: []store.Write{{Name: g.ID, Was: store.Any, Data: []byte(data)}}}); err != nil {
			t.Fatal(err)
		}
		if c, err := w.spare(opsMail, "i", nil); c != nil || err != nil {
			t.Errorf("%s: %v, %v", data, c, err)
		}
		_ = s.Close()
	}
	s := store.NewMemory()
	defer s.Close() //nolint:errcheck // in memory
	w := newYesWorld(t, s)
	g := w.mustMake(1)
	v, err := s.Value(t.Context(), store.Key{Group: groupOf("acme"), Name: g.ID})
	if err == nil {
		_, err = s.Apply(t.Context(), store.Change{Group: groupOf("acme"), Writes: []store.Write{{Name: "copy", Data: v.Data}}})
	}
	if all, listErr := w.List(t.Context(), "acme"); len(all) != 1 || err != nil || listErr != nil {
		t.Errorf("with a copy: %+v, %v, %v", all, err, listErr)
	}
}
