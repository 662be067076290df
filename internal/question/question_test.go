package question

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

var quiet = slog.New(slog.DiscardHandler)

func allow(context.Context, *switchboard.Call, string, []byte) error { return nil }

// gives returns a Caller that answers with this.
func gives(r switchboard.Result, err error) switchboard.Caller {
	return switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) { return r, err })
}

func able() *switchboard.Call {
	return &switchboard.Call{Server: "files", Client: switchboard.Client{Capabilities: []byte(`{"elicitation":{}}`)}}
}

func TestAResultThatAsksForMoreNamesItsServerInEachQuestion(t *testing.T) {
	r := switchboard.Result{JSON: []byte(`{"resultType":"input_required","inputRequests":{"\u0061":{"method":"elicitation/create","params":{"message":"a\u202eb","n":1.0}},"r":{"method":"roots/list"}},"requestState":"s"}`)}
	got, err := Vet(allow, quiet, gives(r, nil)).Call(t.Context(), able())
	want := `{"resultType":"input_required","inputRequests":{"\u0061":{"method":"elicitation/create","params":{"message":"The server \"files\" asks: ab","n":1.0,"_meta":{"io.switchboard/server":"files"}}},` +
		`"r":{"method":"roots/list","params":{"_meta":{"io.switchboard/server":"files"}}}},"requestState":"s"}`
	if err != nil || string(got.JSON) != want {
		t.Errorf("%v\n%s, want\n%s", err, got.JSON, want)
	}
}

func TestASampleHasNoContextOfOtherServers(t *testing.T) {
	r := switchboard.Result{JSON: []byte(`{"resultType":"input_required","inputRequests":{"a":{"method":"sampling/createMessage","params":{"includeContext":"allServers","maxTokens":9}}}}`)}
	got, err := Vet(allow, quiet, gives(r, nil)).Call(t.Context(), able())
	if err != nil || !strings.Contains(string(got.JSON), `"params":{"includeContext":"none","maxTokens":9,`) {
		t.Errorf("%v %s", err, got.JSON)
	}
}

func TestAResultWithoutAQuestionPassesUnchanged(t *testing.T) {
	for _, text := range []string{`{"content":[{"text":"a\u202eb"}],"_meta":{"io.switchboard/server":"x"}}`, `{"resultType":"complete","inputRequests":{"a":{}}}`} {
		r := switchboard.Result{JSON: []byte(text)}
		if got, err := Vet(allow, quiet, gives(r, nil)).Call(t.Context(), able()); err != nil || &got.JSON[0] != &r.JSON[0] {
			t.Errorf("%v %s", err, got.JSON)
		}
	}
	other := &switchboard.ServerError{Object: []byte(`{"code":-32000,"data":{"elicitations":[{"message":"x"}]}}`)}
	if _, err := Vet(allow, quiet, gives(switchboard.Result{}, other)).Call(t.Context(), able()); !errors.Is(err, other) {
		t.Errorf("%v", err)
	}
}

func TestTheErrorThatAsksToVisitURLsIsVettedToo(t *testing.T) {
	first := &switchboard.ServerError{Object: []byte(`{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","message":"log in","url":"https://a.example/"}],"n":1.0}}`)}
	_, err := Vet(allow, quiet, gives(switchboard.Result{}, first)).Call(t.Context(), able())
	if said, ok := errors.AsType[*switchboard.ServerError](err); !ok || !strings.Contains(string(said.Object), `{"mode":"url","message":"The server \"files\" asks: log in","url":"https://a.example/","_meta":{"io.switchboard/server":"files"}}],"n":1.0}`) {
		t.Errorf("%v", err)
	}
	no := func(context.Context, *switchboard.Call, string, []byte) error { return errors.New("no") }
	_, err = Vet(no, quiet, gives(switchboard.Result{}, first)).Call(t.Context(), able())
	if own, ok := errors.AsType[*switchboard.Error](err); !ok || own.Code != switchboard.CodeServerFailed {
		t.Errorf("%v", err)
	}
}

func TestARefusedQuestionReachesNoClientAndItsServerGetsTheReason(t *testing.T) {
	c := able()
	c.Client.Ask = func(context.Context, string, []byte) ([]byte, error) {
		t.Error("the client was asked")
		return nil, nil
	}
	next := switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		_, err := c.Client.Ask(ctx, wire.MethodElicit, []byte(`{"message":"x"}`))
		if said, ok := errors.AsType[*switchboard.ClientError](err); !ok || !strings.Contains(string(said.Object), `"code":-32602`) {
			t.Errorf("the server gets %v", err)
		}
		return switchboard.Result{JSON: []byte(`{}`)}, nil
	})
	no := func(context.Context, *switchboard.Call, string, []byte) error { return errors.New("no") }
	if _, err := Vet(no, quiet, next).Call(t.Context(), c); err != nil {
		t.Error(err)
	}
}

func TestAResultThatAsksForTooMuchIsRefused(t *testing.T) {
	var b strings.Builder
	for i := range maxAsks + 1 {
		b.WriteString(`,"` + strings.Repeat("k", i+1) + `":{"method":"roots/list"}`)
	}
	r := switchboard.Result{JSON: []byte(`{"resultType":"input_required","inputRequests":{` + b.String()[1:] + `}}`)}
	if _, err := Vet(allow, quiet, gives(r, nil)).Call(t.Context(), able()); err == nil {
		t.Error("it passed")
	}
}

func BenchmarkVetAPlainResult(b *testing.B) {
	text := []byte(`{"content":[{"type":"text","text":"` + strings.Repeat("x", 1024) + `"}]}`)
	next := Vet(allow, quiet, gives(switchboard.Result{JSON: text, Outline: wire.OutlineOf(text)}, nil))
	for name, c := range map[string]*switchboard.Call{"of a client that cannot be asked": {}, "of one that can": able()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = next.Call(b.Context(), c)
			}
		})
	}
}
