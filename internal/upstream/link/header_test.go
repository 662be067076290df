package link

import (
	"net/http"
	"testing"
)

func TestHeadersRepeatOnlyWhatAHeaderCanHold(t *testing.T) {
	for in, want := range map[string]string{
		`"plain"`: "plain", `""`: "", `" x"`: "=?base64?IHg=?=", `true`: "true", `false`: "false", `42`: "42", `-1.0e1`: "-10",
		`"\u00fc"`: "=?base64?w7w=?=", `"a\r\nB: c"`: "=?base64?YQ0KQjogYw==?=",
		`1.5`: "-", `null`: "-", `[1]`: "-", `{"a":1}`: "-", `9007199254740993`: "-", `1e400`: "-",
	} {
		h := http.Header{}
		addParamHeaders(h, []byte(`{"inputSchema":{"properties":{"p":{"x-mcp-header":"P"}}}}`), []byte(`{"p":`+in+`}`))
		got := "-"
		if v, ok := h["Mcp-Param-P"]; ok {
			got = v[0]
		}
		if got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}
