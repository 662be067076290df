package gateway_test

import (
	"testing"

	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A model reads that its budget is used up, and a program reads how much is left.
func TestTheDataOfARefusalHasItsMembers(t *testing.T) {
	e := &switchboard.Error{
		Code: switchboard.CodeBudgetExceeded, Text: "the call was not made", Hint: "call again later",
		Data: []switchboard.DataMember{{Name: "error_code", JSON: []byte(`"BUDGET_EXCEEDED"`)}, {Name: "left", JSON: []byte(`"0.10"`)}},
	}
	const data = `{"code":"SB-COST-001","retryable":"later","hint":"call again later","error_code":"BUDGET_EXCEEDED","left":"0.10"}`
	for method, want := range map[string]string{
		wire.MethodToolsCall: `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"the call was not made. Call again later (SB-COST-001)"}],"isError":true,"_meta":{"io.switchboard/error":` + data + `}}}`,
		"prompts/get":        `{"jsonrpc":"2.0","id":1,"error":{"code":801,"message":"the call was not made","data":` + data + `}}`,
	} {
		if got := string(gateway.RefusalOf("switchboard", "1", []byte("1"), method, false, e)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", method, got, want)
		}
	}
}
