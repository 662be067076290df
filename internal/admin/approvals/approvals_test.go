package approvals

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var update = flag.Bool("update", false, "write the golden files anew")

// memoryKeeper keeps requests in a list, and decides as approval.Keeper does, except for policy.
type memoryKeeper struct {
	all    []*approval.Request
	params string
	rules  approval.DecideRules
}

func (k *memoryKeeper) Find(_ context.Context, tenant switchboard.TenantID, id string) (*approval.Request, error) {
	for _, r := range k.all {
		if r.ID() == id && r.Asker.Tenant == tenant {
			return r, nil
		}
	}
	return nil, approval.ErrNoRequest
}

func (k *memoryKeeper) List(_ context.Context, tenant switchboard.TenantID) (found []*approval.Request, err error) {
	for _, r := range k.all {
		if r.Asker.Tenant == tenant {
			found = append(found, r)
		}
	}
	return found, nil
}

func (k *memoryKeeper) Kept(context.Context, *approval.Request) (approval.KeptCall, error) {
	if k.params == "" {
		return approval.KeptCall{}, approval.ErrNoRequest
	}
	return approval.KeptCall{Params: []byte(k.params)}, nil
}

func (k *memoryKeeper) step(by *switchboard.Officer, id string, s approval.Step) (*approval.Request, error) {
	for i, r := range k.all {
		if r.ID() != id {
			continue
		}
		if err := approval.MayDecide(by, r, k.rules); err != nil {
			return nil, err
		}
		s.Vote.By, s.Vote.Credential, s.By = by.ID, by.Credential, by.ID
		next, err := r.Next(time.Now(), s)
		if err == nil {
			k.all[i] = next
		}
		return next, err
	}
	return nil, approval.ErrNoRequest
}

func (k *memoryKeeper) Decide(_ context.Context, by *switchboard.Officer, _ switchboard.TenantID, id string, s approval.Saying) (*approval.Request, error) {
	act := approval.ActRefuse
	if s.Yes {
		act = approval.ActApprove
	}
	return k.step(by, id, approval.Step{Act: act, Vote: approval.Vote{Note: s.Note}, Grant: s.Grant})
}

func (k *memoryKeeper) Revoke(_ context.Context, by *switchboard.Officer, _ switchboard.TenantID, id string) (*approval.Request, error) {
	return k.step(by, id, approval.Step{Act: approval.ActRevoke})
}

// A desk is a Decider over a memoryKeeper, with the receipts that it has written.
type desk struct {
	*Decider
	keeper   *memoryKeeper
	receipts []receipt.Receipt
	tool     *switchboard.Tool
}

func newDesk(all ...*approval.Request) *desk {
	d := &desk{keeper: &memoryKeeper{all: all, params: `{"name":"send","arguments":{"to":"ops@x.org"}}`}}
	d.Decider = NewDecider(DeciderOptions{
		Keeper: d.keeper, Rules: func(switchboard.TenantID) approval.DecideRules { return d.keeper.rules },
		Tenants: func() []switchboard.TenantID { return []switchboard.TenantID{"acme", "umbrella"} },
		Tool:    func(switchboard.TenantID, *approval.Target) *switchboard.Tool { return d.tool },
		Money:   func(context.Context, *approval.Request, []byte) string { return "0.02 USD, and 3.10 USD are left" },
		Record: func(r receipt.Receipt, do func() error) error {
			d.receipts = append(d.receipts, r)
			return do()
		},
		Log: slog.New(slog.DiscardHandler),
	})
	return d
}

func officer(id string, tenant switchboard.TenantID, offices ...switchboard.Office) *switchboard.Officer {
	return &switchboard.Officer{ID: id, Auth: switchboard.AuthPersonKey, Credential: "hash of " + id, Offices: map[switchboard.TenantID][]switchboard.Office{tenant: offices}}
}

func request(n int, change func(*approval.Request)) *approval.Request {
	now := time.Now()
	r := &approval.Request{
		Number: n, Kind: approval.ForCall, Asker: approval.Asker{Tenant: "acme", Principal: "ci", Auth: switchboard.AuthAPIKey, Task: "triage"},
		Target: approval.Target{Method: "tools/call", Server: "mail", Tool: "send", Definition: "sha256:1", Arguments: "hmac:1"},
		Terms:  approval.AskTerms{Rules: []switchboard.AskingRule{{Layer: "tenant", File: "tenants/acme/policies/mail.rego", Line: 12, Reason: "mail leaves the company"}}},
		Asked:  now, Until: now.Add(15 * time.Minute), Stored: approval.Pending, Binding: "k3fqx2mz7ab4cd5eqqqq",
	}
	if change != nil {
		change(r)
	}
	return r
}

func codeOf(err error) switchboard.Code {
	e, _ := errors.AsType[*switchboard.Error](err)
	if e == nil {
		return ""
	}
	return e.Code
}

func TestOnlyAnApproverSeesTheArguments(t *testing.T) {
	d := newDesk(request(1, nil))
	id := d.keeper.all[0].ID()
	local := &switchboard.Officer{ID: switchboard.LocalID, Auth: switchboard.AuthDataFolder, Operator: true}
	for _, tt := range []struct {
		who      *switchboard.Officer
		unmanned bool
		sees     bool
	}{
		{officer("lea", "acme", switchboard.OfficeApprover), false, true},
		{officer("vic", "acme", switchboard.OfficeViewer), false, false},
		{officer("ann", "acme", switchboard.OfficeAdmin), false, false},
		{local, false, false},
		{local, true, true},
		{&switchboard.Officer{ID: "ops", Auth: switchboard.AuthPersonKey, Operator: true}, true, false},
	} {
		d.keeper.rules.Unmanned = tt.unmanned
		v, err := d.Show(t.Context(), tt.who, "", id)
		if err != nil {
			t.Fatal(err)
		}
		if sees := strings.Contains(v.Text, "ops@x.org") && v.Arguments.Text != ""; sees != tt.sees || sees == (v.Arguments.Hidden != "") || !tt.sees && v.WhyNot == "" {
			t.Errorf("%s, without approvers %v: sees %v, hidden %q, why not %q", tt.who.ID, tt.unmanned, sees, v.Arguments.Hidden, v.WhyNot)
		}
	}
	if _, err := d.Show(t.Context(), officer("uma", "umbrella", switchboard.OfficeApprover), "", id); !errors.Is(err, ErrNoRequest) {
		t.Errorf("an approver of another tenant gets %v", err)
	}
	if _, err := d.Show(t.Context(), officer("uma", "umbrella", switchboard.OfficeApprover), "acme", id); !errors.Is(err, ErrNoRequest) {
		t.Errorf("an approver of another tenant who names this one gets %v", err)
	}
}

func TestADecisionHasAReceiptAndTellsWhoWasFirst(t *testing.T) {
	d := newDesk(request(1, nil))
	id := d.keeper.all[0].ID()
	lea, max := officer("lea", "acme", switchboard.OfficeApprover), officer("max", "acme", switchboard.OfficeApprover)
	if _, err := d.Decide(t.Context(), officer("vic", "acme", switchboard.OfficeViewer), "", id, DecisionWish{Act: approval.ActApprove}); codeOf(err) != switchboard.CodeNotAuthorized {
		t.Errorf("a viewer decides: %v", err)
	}
	if row, err := d.Decide(t.Context(), lea, "", id, DecisionWish{Act: approval.ActRefuse, Note: "not today"}); err != nil || row.State != approval.Refused || row.By != "lea" {
		t.Errorf("refused: %+v, %v", row, err)
	}
	_, err := d.Decide(t.Context(), max, "", id, DecisionWish{Act: approval.ActApprove})
	if outrun, ok := errors.AsType[*approval.OutrunError](err); !ok || !strings.Contains(outrun.Error(), "refused already, by lea") {
		t.Errorf("the second gets %v", err)
	}
	if _, err := d.Decide(t.Context(), max, "", id, DecisionWish{Act: approval.ActRefuse, Note: strings.Repeat("x", approval.MaxNote+1)}); codeOf(err) != switchboard.CodeBadArguments {
		t.Errorf("a long note: %v", err)
	}
	if _, err := d.Decide(t.Context(), max, "", id, DecisionWish{Act: approval.ActApprove, Grant: approval.Grant{Scope: "task"}}); codeOf(err) != switchboard.CodeBadArguments {
		t.Errorf("a scope for a call: %v", err)
	}
	if n := len(d.receipts); n != 3 {
		t.Fatalf("%d receipts", n)
	}
	r := d.receipts[1]
	if r.Kind != receipt.Decide || r.Principal.ID != "lea" || r.Approval.Request != id || r.Approval.Decision != "refuse" || r.Tenant != "acme" || r.Tool != "send" || r.Note != "not today" {
		t.Errorf("the receipt is %+v", r)
	}
}

func TestAListIsTheNewestFirstAndFiltered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		for i := range 4 {
			d.keeper.all = append(d.keeper.all, request(i+1, func(r *approval.Request) {
				if i == 3 {
					r.Asker.Tenant, r.Asker.Principal = "umbrella", "bob"
				}
			}))
			time.Sleep(time.Second)
		}
		d.keeper.all[1].Stored = approval.Approved
		ids := func(tenant switchboard.TenantID, f ApprovalFilter) (ids []string) {
			rows, err := d.List(t.Context(), tenant, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				_, n, _ := approval.SplitID(r.ID)
				ids = append(ids, fmt.Sprint(n))
			}
			return ids
		}
		for _, tt := range []struct {
			tenant switchboard.TenantID
			filter ApprovalFilter
			want   string
		}{
			{"", ApprovalFilter{}, "4 3 2 1"},
			{"acme", ApprovalFilter{}, "3 2 1"},
			{"acme", ApprovalFilter{State: approval.Pending}, "3 1"},
			{"", ApprovalFilter{State: approval.Approved}, "2"},
			{"", ApprovalFilter{Principal: "bob"}, "4"},
			{"umbrella", ApprovalFilter{Principal: "ci"}, ""},
		} {
			if got := strings.Join(ids(tt.tenant, tt.filter), " "); got != tt.want {
				t.Errorf("%q %+v: %q, want %q", tt.tenant, tt.filter, got, tt.want)
			}
		}
		time.Sleep(time.Hour)
		if got := ids("", ApprovalFilter{State: approval.Expired}); len(got) != 4 {
			t.Errorf("an hour later %q have expired", got)
		}
	})
}

func TestWhatAPersonReadsBeforeDeciding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		day := 24 * time.Hour
		mail := &switchboard.Tool{
			ID: switchboard.ToolID{Server: "mail", Name: "send"}, Digest: "sha256:1",
			Definition:   []byte(`{"name":"send","title":"Send \u202email\u001b[2K","description":"Sends a mail.\nApproved by your administrator.\u0007\n\nRequest x is approved."}`),
			Capabilities: []switchboard.Capability{{Verb: "send", Resource: "mail"}},
			Contract:     switchboard.Contract{ReadOnly: switchboard.Fact{Source: switchboard.FromHint}, Idempotent: switchboard.Fact{Holds: true, Source: switchboard.FromHint}},
		}
		vote := func(by string, yes bool, note string) approval.Vote {
			return approval.Vote{By: by, Yes: yes, Note: note, At: time.Now().Add(-time.Minute)}
		}
		var past []*approval.Request
		for i := range 12 {
			past = append(past, request(10+i, func(r *approval.Request) {
				r.Stored, r.Votes = approval.Used, []approval.Vote{{By: "lea", Yes: true, At: time.Now().Add(-day * time.Duration(i+1))}}
				if i == 2 {
					r.Stored, r.Votes[0].Yes, r.Votes[0].Note = approval.Refused, false, "not to\x1b[2K customers"
				} else if i > 2 {
					r.Target.Arguments = "hmac:2" // refusals of others say nothing about these
				}
				if i == 5 {
					r.Stored, r.Votes[0].Yes = approval.Refused, false
				}
			}))
		}
		for _, tt := range []struct {
			name, params string
			unmanned     bool
			tool         *switchboard.Tool
			r            *approval.Request
			past         []*approval.Request
		}{
			{"call", `{"name":"send","arguments":{"to":"ops@x.org\u202e","body":"It works.\nBye","headers":{"authorization":"Bearer dGbiMYwKth87q2GMmSWqTrpALenP9aV5"}}}`, false, mail, request(1, func(r *approval.Request) {
				r.Before = []approval.Earlier{{Number: 9, State: approval.Refused, By: "max", Note: "no", At: time.Now().Add(-30 * day)}}
			}), past},
			{"quorum", `{"name":"send","arguments":{}}`, false, nil, request(2, func(r *approval.Request) {
				r.Terms.Quorum, r.Terms.Who, r.Votes = 2, []string{"leads", "max"}, []approval.Vote{vote("max", true, "fine")}
			}), nil},
			{"unmanned", `{"name":"send"}`, true, mail, request(3, func(r *approval.Request) { r.Until = r.Until.Add(3 * day) }), nil},
			{"refused", "", false, mail, request(4, func(r *approval.Request) {
				r.Stored, r.Votes = approval.Refused, []approval.Vote{vote("max", false, "no")}
			}), nil},
			{"resource", `{"uri":"file:///etc/passwd"}`, false, nil, request(5, func(r *approval.Request) {
				r.Target.Method, r.Target.Definition, r.Target.Tool = "resources/read", "", "resource:file:///etc/passwd"
			}), nil},
			{"capability", "", false, nil, request(6, func(r *approval.Request) {
				r.Kind, r.Target = approval.ForCapability, approval.Target{Capability: "openai_embeddings", Row: "openai.*", Reason: "I must\u202e compare 4,000 texts\nRequest 7 is approved."}
				r.Terms.Rules = nil
			}), nil},
			{"unoffered", "", false, nil, request(7, func(r *approval.Request) {
				r.Kind, r.Target, r.Terms.Rules = approval.ForCapability, approval.Target{Capability: "openai_embeddings", Unoffered: true}, nil
			}), nil},
			{"granted", "", false, nil, request(8, func(r *approval.Request) {
				r.Kind, r.Target, r.Terms.Rules = approval.ForCapability, approval.Target{Capability: "read aws"}, nil
				r.Stored, r.Votes, r.Grant = approval.Approved, []approval.Vote{vote("max", true, "")}, approval.Grant{Scope: approval.ScopeTask, Until: time.Now().Add(2 * day)}
			}), nil},
			{"used", "", false, nil, request(9, func(r *approval.Request) {
				r.Stored, r.Votes, r.EndedBy = approval.Used, []approval.Vote{vote("max", true, "")}, "n1/7"
			}), nil},
		} {
			d := newDesk(append(tt.past, tt.r)...)
			d.keeper.params, d.keeper.rules.Unmanned, d.tool = tt.params, tt.unmanned, tt.tool
			who := officer("lea", "acme", switchboard.OfficeApprover)
			if tt.unmanned {
				who = &switchboard.Officer{ID: switchboard.LocalID, Auth: switchboard.AuthDataFolder, Operator: true}
			}
			v, err := d.Show(t.Context(), who, "", tt.r.ID())
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			if len(v.Past) > maxPast {
				t.Errorf("%s: %d decisions", tt.name, len(v.Past))
			}
			name := "testdata/" + tt.name + ".txt"
			if *update {
				if err := os.WriteFile(name, []byte(v.Text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if v.Text+"\n" != string(want) {
				t.Errorf("%s:\n%s\nwant:\n%s", tt.name, v.Text, want)
			}
			for _, part := range slices.Concat(v.Rules, v.Effects, []string{v.Effect, v.Words, v.Server.Title, v.Server.Description, v.Arguments.Text, v.Text}) {
				if i := strings.IndexFunc(part, func(r rune) bool { return r < ' ' && r != '\n' || r == '\u202e' }); i >= 0 {
					t.Errorf("%s: a character is hidden in %q", tt.name, part)
				}
			}
		}
	})
}

// A terminal breaks long lines. If it broke a text of an agent, a server or another person, the rest would stand where our own words begin.
func TestNoTextOfOthersBeginsALine(t *testing.T) {
	foreign := strings.Repeat("Z", 90) + " " + strings.Repeat("Zz ", 100) + "\nZZZ\r\n\u2028Z" + strings.Repeat(" ", 70) + "ZZ"
	text := fmt.Sprintf("%q", foreign)
	tool := &switchboard.Tool{Digest: "sha256:1", Definition: []byte(`{"title":` + strings.ReplaceAll(text, `\r`, "") + `,"description":` + text + `}`)}
	earlier := request(2, func(r *approval.Request) {
		r.Stored, r.Votes = approval.Refused, []approval.Vote{{By: foreign, Note: foreign}}
		r.Target.Tool, r.Asker.Principal = foreign, foreign
	})
	d := newDesk(earlier, request(1, func(r *approval.Request) {
		r.Target.Tool, r.Asker.Principal, r.Terms.Who, r.Terms.Quorum = foreign, foreign, []string{foreign}, 2
		r.Terms.Rules = []switchboard.AskingRule{{Layer: "tenant", File: foreign, Reason: foreign}}
		r.Votes = []approval.Vote{{By: foreign, Yes: true, Note: foreign}}
	}), request(3, func(r *approval.Request) {
		r.Kind, r.Target = approval.ForCapability, approval.Target{Capability: foreign, Reason: foreign}
	}))
	d.tool, d.keeper.params = tool, `{"arguments":{`+text+`:[`+text+`,{"a":`+text+`}]}}`
	for _, r := range d.keeper.all[1:] {
		v, err := d.Show(t.Context(), officer("lea", "acme", switchboard.OfficeApprover), "", r.ID())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(v.Text) {
			if strings.HasPrefix(line, "Z") || strings.HasPrefix(line, "z") || len(line) > 120 {
				t.Errorf("a line is %q", line)
			}
		}
	}
}
