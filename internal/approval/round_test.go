package approval_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// An agent's own answers could pass for a person's confirmation at the server.
func TestAnswersThatNoPersonSawAreNotSentWithTheFirstCall(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	k := newKeeper(t, s, func(o *approval.Options) {
		o.Arguments = func(c *switchboard.Call) string { raw, _ := wire.Field(c.Params, "arguments"); return string(raw) }
		o.Settings = func(switchboard.TenantID) switchboard.ApprovalSettings {
			return switchboard.ApprovalSettings{Wait: time.Millisecond}
		}
	})
	result, sent := `{"resultType":"input_required","requestState":"\u0041"}`, ""
	caller := k.Approve(same, switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		sent = string(c.Params)
		return switchboard.Result{JSON: []byte(result)}, nil
	}))
	call := func(arguments, more string) (string, error) {
		c := callOf(arguments)
		c.Params = []byte(`{"name":"send","arguments":` + arguments + more + `}`)
		r, err := caller.Call(t.Context(), c)
		return string(r.JSON), err
	}
	refused := func(what, arguments, more string) {
		t.Helper()
		sent = ""
		if _, err := call(arguments, more); codeOf(err) != switchboard.CodeBadArguments || sent != "" {
			t.Errorf("%s: %v, sent %s", what, err, sent)
		}
	}
	const answers = `,"inputResponses":{"1":{"action":"accept"}}`
	for _, more := range []string{answers, `,"requestState":"A"`, answers + `,"requestState":"A"`, `,"confirmed":true`} {
		refused("before a person is asked: "+more, `{}`, more)
	}
	if all, err := k.List(t.Context(), "acme"); err != nil || len(all) != 0 {
		t.Errorf("a person was asked: %d requests, %v", len(all), err)
	}
	for _, arguments := range []string{`{}`, `{"other":1}`} {
		if _, err := call(arguments, ""); codeOf(err) != switchboard.CodeApprovalPending {
			t.Fatal(err)
		}
		decide(t, k, pendingOf(t, k), approval.Saying{Yes: true})
		refused("after the yes, before the server asks", arguments, answers)
	}
	asked, err := call(`{}`, "")
	raw, ok := wire.Field([]byte(asked), "requestState")
	if err != nil || !ok {
		t.Fatalf("%s, %v", asked, err)
	}
	state := `,"requestState":` + string(raw)
	refused("a state of another call", `{"other":1}`, answers+state)
	refused("a state that was changed", `{}`, answers+strings.Replace(state, "0041", "0042", 1))
	if _, err := call(`{}`, answers+state); err != nil || sent != `{"name":"send","arguments":{}`+answers+`,"requestState":"\u0041"}` {
		t.Errorf("the second round: %v, sent %s", err, sent)
	}
	result = `{"resultType":"input_required","inputRequests":{}}`
	asked, _ = call(`{}`, answers+state)
	raw, _ = wire.Field([]byte(asked), "requestState")
	if _, err := call(`{}`, answers+`,"requestState":`+string(raw)); err != nil || sent != `{"name":"send","arguments":{}`+answers+`}` {
		t.Errorf("of a server without a state: %v, sent %s", err, sent)
	}
	all, err := k.List(t.Context(), "acme")
	if err != nil || len(all) != 2 {
		t.Fatalf("%d requests, %v", len(all), err)
	}
	for _, r := range all {
		if _, err := k.Revoke(t.Context(), approver, "acme", r.ID()); err != nil {
			t.Fatal(err)
		}
	}
	sent = ""
	if _, err := call(`{}`, answers+state); codeOf(err) != switchboard.CodeApprovalGone || sent != "" {
		t.Errorf("after the yes was taken back: %v, sent %s", err, sent)
	}
}
