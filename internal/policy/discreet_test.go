package policy

import (
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
)

func TestAReasonDoesNotRepeatTheArguments(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	for _, tt := range []struct{ reason, arguments, want string }{
		{"outside of the workspace: /etc/passwd-of-all", `{"path":"/etc/passwd-of-all"}`, "outside of the workspace: ***"},
		{"host evil.example.com is not allowed", `{"a":[{"b":"https://EVIL.example.com/x"}]}`, "host *** is not allowed"},
		{"no 1234567.0 and no member_name", `{"n":1234567.0,"member_name":1}`, "no *** and no ***"},
		{"it says s3cr\tet", `{"a":"s3cr\u0009et"}`, "it says ***"},
		{"short: abc", `{"a":"abc"}`, "short: abc"},
		{"b is closed", `{"a":"something else"}`, "b is closed"},
		{"no arguments", ``, "no arguments"},
		{"no JSON", `{"a":`, "its reason may repeat the arguments"},
	} {
		if got := unrepeated(tt.reason, []byte(tt.arguments)); got != tt.want {
			t.Errorf("%q with %s: %q, want %q", tt.reason, tt.arguments, got, tt.want)
		}
	}
}
