package receipt

import (
	"testing"
	"time"
)

// BenchmarkAppend measures writing the JSON of a typical receipt of a call.
func BenchmarkAppend(b *testing.B) {
	r := Receipt{
		V: version, Time: time.Unix(1_700_000_000, 123_456_000), Kind: Call,
		Tenant: "acme", Principal: Subject{ID: "ann", Auth: "api_key", Mode: "autopilot"}, Task: "research", Run: "0123456789abcdef0123456789abcdef",
		Method: "tools/call", Server: "brave", Tool: "brave_web_search", Effect: true,
		Decision: EmptyDigest, Basis: EmptyDigest, Arguments: string(EmptyDigest), Result: string(EmptyDigest),
		Outcome: OK, Of: "node-1/123456", Took: CallTime{Total: 123_456, Waiting: 12},
	}
	b.ReportAllocs()
	buf := make([]byte, 0, 2048)
	for b.Loop() {
		buf = r.append(buf[:0])
	}
}
