package session

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// request parses a tools/call with these params.
func request(t *testing.T, params string) *wire.Message {
	t.Helper()
	m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return &m
}

func TestAParkedCallIsResumedOnlyByItsOwnRequestAndOnce(t *testing.T) {
	key := []byte("shared")
	one, two := NewParkedCalls("one", key, slog.New(slog.DiscardHandler)), NewParkedCalls("two", key, slog.New(slog.DiscardHandler))
	asking := switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		answer, err := c.Client.Ask(ctx, "elicitation/create", []byte(`{}`))
		return switchboard.Result{JSON: answer}, err
	})
	asked, err := one.Call(t.Context(), KeyOf(bob), request(t, `{"name":"ask"}`), asking, &switchboard.Call{})
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := wire.Field(asked.JSON, "requestState")
	state, _ := wire.String(raw)
	again := func(name string) *wire.Message {
		return request(t, `{"name":"`+name+`","requestState":`+string(raw)+`,"inputResponses":{"1":{"ok":true}}}`)
	}
	if !HasState(again("ask")) || HasState(request(t, `{}`)) {
		t.Error("a request has a state, or has none, by mistake")
	}
	if got := two.ReplicaOf(KeyOf(bob), again("ask")); got != "one" {
		t.Errorf("the other replica finds it at %q", got)
	}
	for what, got := range map[string]string{
		"another principal": two.ReplicaOf(KeyOf(eve), again("ask")),
		"another request":   two.ReplicaOf(KeyOf(bob), again("other")),
		"its own replica":   one.ReplicaOf(KeyOf(bob), again("ask")),
	} {
		if got != "" {
			t.Errorf("%s is sent to %q", what, got)
		}
	}
	resume := func(p switchboard.Principal, name string) (string, bool) {
		result, found, err := one.Resume(t.Context(), KeyOf(p), again(name), state, nil)
		if err != nil {
			t.Error(err)
		}
		return string(result.JSON), found
	}
	if _, found := resume(eve, "ask"); found {
		t.Error("another principal has resumed it")
	}
	if _, found := resume(bob, "other"); found {
		t.Error("another request has resumed it")
	}
	if got, found := resume(bob, "ask"); !found || got != `{"ok":true}` {
		t.Errorf("the result: %s, %t", got, found)
	}
	if _, found := resume(bob, "ask"); found {
		t.Error("it was resumed twice")
	}
}

func TestNothingIsParkedAfterClose(t *testing.T) {
	ps := NewParkedCalls("", nil, slog.New(slog.DiscardHandler))
	why := errors.New("stopping")
	ps.Close(why)
	_, err := ps.Call(t.Context(), KeyOf(bob), request(t, `{}`), switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		_, err := c.Client.Ask(ctx, "roots/list", nil)
		return switchboard.Result{}, err
	}), &switchboard.Call{})
	if !errors.Is(err, why) {
		t.Errorf("the call ends with %v", err)
	}
}
