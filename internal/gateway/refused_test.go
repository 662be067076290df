package gateway_test

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestEveryRefusalIsCountedOnce(t *testing.T) {
	w := newWorld(t)
	w.play("denied", refusing(switchboard.CodeDenied))
	w.play("failing", refusing(switchboard.CodeServerFailed))
	w.revoke("gone")
	in := w.session(nil)
	unknown, h := modern("1", "tools/call", `"name":"nowhere",`, "nowhere")
	for _, tt := range []struct {
		name string
		do   func()
		want []switchboard.Code
	}{
		{"a call that succeeds", func() { w.post(legacyCall("1", "echo", ""), in) }, nil},
		{"a tool that is not there", func() { w.post(unknown, h) }, []switchboard.Code{switchboard.CodeNoSuchTool}},
		{"what the model is told", func() { w.post(legacyCall("1", "denied", ""), in) }, []switchboard.Code{switchboard.CodeDenied}},
		{"what it is not", func() { w.post(legacyCall("1", "failing", ""), in) }, []switchboard.Code{switchboard.CodeServerFailed}},
		{"who is not known", func() { w.post(initialize, head{"Authorization": "Bearer gone"}) }, []switchboard.Code{switchboard.CodeNotAuthenticated}},
		{"a host that is not ours", func() { w.do(http.MethodGet, "/v1/status", "", head{"Host": "evil.example"}) }, nil},
		{"another page", func() { w.post(initialize, head{"Origin": "https://evil.example"}) }, []switchboard.Code{switchboard.CodeNotAuthorized}},
		{"a task that cannot start", func() { w.do(http.MethodPost, "/v1/tasks/unmet/runs", "", nil) }, []switchboard.Code{switchboard.CodeUnmet}},
		{"what is no refusal of ours", func() { w.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":7}`, in) }, nil},
		{"over stdio", func() {
			c := w.stdio(t.Context(), "")
			c.send(initialize)
			c.next()
			c.send(legacyCall("1", "nowhere", ""))
			c.next()
			_ = c.end()
		}, []switchboard.Code{switchboard.CodeNoSuchTool}},
		{"while it stops", func() {
			w.Close()
			w.post(initialize, nil)
		}, []switchboard.Code{switchboard.CodeOverloaded}},
	} {
		tt.do()
		w.mu.Lock()
		if !slices.Equal(w.refused, tt.want) {
			t.Errorf("%s: counted %q, want %q", tt.name, w.refused, tt.want)
		}
		w.refused = nil
		w.mu.Unlock()
	}
}

func refusing(code switchboard.Code) switchboard.CallerFunc {
	return func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{}, switchboard.Refuse(code, "no")
	}
}
