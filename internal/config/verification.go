package config

import (
	"time"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of verify: and of the examples of a tool.
const (
	minVerifyEvery = time.Hour
	maxVerifyEvery = 365 * 24 * time.Hour
	maxExamples    = 4
	maxExample     = 16 << 10 // bytes of one
)

// verifyKeys are the keys of verify:.
func verifyKeys(rules *switchboard.VerifyRules) *document.Keys {
	return &document.Keys{
		Rows: []document.Row{
			{Key: "every", Type: document.Duration(minVerifyEvery, maxVerifyEvery, &rules.Every), Doc: "How often its tools are verified again. If absent: every 30 days, once they have been verified."},
			{Key: "calls", Type: document.Integer(1, switchboard.MaxVerifyCalls, &rules.Calls), Doc: "The most calls for one tool; 60 if absent."},
			{Key: "time", Type: document.Duration(time.Second, switchboard.MaxVerifyTime, &rules.Time), Doc: "The longest time for one tool; 60s if absent."},
			{Key: "environment", Type: document.OneOf("environment", func(s string) { rules.Test = s == "test" }, "test"), Doc: "`test`: the server is a test environment. Each of its tools may be called with made-up and with hostile arguments; nothing real may be behind it."},
		},
		Hints: map[string]string{"interval": `write "every"`, "timeout": `write "time"`, "env": `write "environment"`},
	}
}

// examplesType is the type of the examples of a tool's arguments.
func (t *toolReader) examplesType() document.Type {
	schema := document.Schema{"type": "array", "items": document.Schema{"type": "object"}, "minItems": 1, "maxItems": maxExamples}
	return document.Custom("a list of maps of any shape", schema, func(v document.Value) {
		if t.source == switchboard.FromTenantOverlay {
			v.Fault("only the operator verifies tools; examples belong into the operator's overlays")
			return
		}
		for _, e := range v.ReadList(maxExamples) {
			text := e.ReadJSONMap()
			if len(text) > maxExample {
				e.Fault("the example has %d bytes; at most %d are allowed", len(text), maxExample)
				continue
			}
			if text != nil {
				t.overlay.Examples = append(t.overlay.Examples, text)
			}
		}
	})
}
