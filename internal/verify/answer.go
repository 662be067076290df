package verify

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/redact/detect"
	"github.com/summit-switchboard/switchboard/internal/scan/suspect"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// An ending is how a call ended.
type ending string

const (
	succeeded ending = "succeeded"
	refused   ending = "refused"  // the answer is marked as an error
	died      ending = "died"     // the connection broke, or the server ended
	silent    ending = "silent"   // no answer in time
	broken    ending = "broken"   // the answer is no valid one, or too large
	away      ending = "away"     // the server did not come back after the calls before
	notMade   ending = "not made" // Switchboard refused the call, or could not make it
)

// A callAnswer is what a call has led to.
type callAnswer struct {
	ending ending
	code   switchboard.Code // of an error of Switchboard
	why    string           // of an error, in words
	result []byte           // as the server sent it
	text   string           // all of the answer, as a reader could see it
	cut    bool             // the time for the tool was over before the time of the call
	waited time.Duration
}

// watched returns a Caller that remembers what the server has answered, before policy redacts it.
func (r *toolRun) watched(target switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		result, err := target.Call(ctx, c)
		a := readAnswer(result, err)
		if a.ending == succeeded && r.misfit == "" {
			r.misfit = outputMisfit(ctx, c, result)
		}
		r.seen = &a
		return result, err
	})
}

// call makes one call, and reads its answer.
func (r *toolRun) call(ctx context.Context, args []byte) callAnswer {
	params := append([]byte(`{"name":`), canonical.Encode(r.tool.ID.Name)...)
	params = append(append(append(params, `,"arguments":`...), args...), '}')
	began := time.Now()
	left := r.until.Sub(began)
	ctx, cancel := context.WithTimeout(ctx, min(r.callTime, left))
	defer cancel()
	r.seen = nil
	result, err := r.caller.Call(ctx, &switchboard.Call{
		Principal: r.o.Principal, Server: r.tool.ID.Server, Method: wire.MethodToolsCall, Tool: r.tool, Target: r.tool.ID.Name, Params: params, AnyLength: true, Judgments: r.judgments,
	})
	a := readAnswer(result, err)
	if r.seen != nil {
		a = *r.seen
	}
	a.waited = time.Since(began)
	a.cut = (a.ending == silent || a.ending == away || a.ending == notMade) && left < r.callTime-time.Second && a.waited >= left
	return a
}

// readAnswer classifies the outcome of a call.
func readAnswer(result switchboard.Result, err error) callAnswer {
	if err == nil {
		a := callAnswer{ending: succeeded, result: bytes.Clone(result.JSON), text: string(result.JSON)} // wrappers may change the bytes
		if failed, _ := wire.Field(result.JSON, wire.MemberError); string(failed) == "true" {
			a.ending = refused
			a.why = firstText(result.JSON)
		}
		return a
	}
	if e, ok := errors.AsType[*switchboard.ServerError](err); ok {
		a := callAnswer{ending: refused, text: string(e.Object)}
		raw, _ := wire.Field(e.Object, "message")
		a.why, _ = wire.String(raw)
		return a
	}
	own, ok := errors.AsType[*switchboard.Error](err)
	if !ok {
		return callAnswer{ending: notMade, why: err.Error()}
	}
	a := callAnswer{ending: notMade, code: own.Code, why: own.Text}
	switch {
	case own.Code == switchboard.CodeResultInvalid:
		a.ending = broken
	case own.Unsent && (own.ServerFailed || own.Code == switchboard.CodeServerUnreachable || own.Code == switchboard.CodeNotExecuted):
		a.ending = away
	case own.ConnectionLost, own.Code == switchboard.CodeServerFailed:
		a.ending = died
	case own.Code == switchboard.CodeOutcomeUnknown:
		a.ending = silent
	}
	return a
}

// firstText returns the first text of a result.
func firstText(result []byte) string {
	content, _ := wire.Field(result, "content")
	for one := range wire.Elements(content) {
		raw, _ := wire.Field(one, "text")
		text, _ := wire.String(raw)
		return text
	}
	return ""
}

// outputMisfit returns why a result does not fit the output schema of its tool, or "".
func outputMisfit(ctx context.Context, c *switchboard.Call, r switchboard.Result) string {
	same := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) { return r, nil })
	if _, err := contract.Results(same).Call(ctx, c); err != nil {
		return err.Error()
	}
	return ""
}

// stacks find the stack traces that programs print. They are compiled when an answer is first checked, because they take 300 KB.
var stacks = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`Traceback \(most recent call last\)` +
		`|goroutine \d+ \[running\]` +
		`|(?:\n|\\n)\s+at (?:[^\n\\]{0,200} \()?(?:file://|node:|/|[A-Za-z]:\\)[^\n\\)]{1,300}:\d+:\d+\)?` +
		`|(?:\n|\\n)\s+at [\w.$]+\([\w]+\.(?:java|kt):\d+\)` +
		`|thread '[^']{0,80}' panicked at`)
})

// disclosed returns what an answer discloses that its call did not have, or "".
func disclosed(a *callAnswer, args string, canaries []Canary) string {
	for _, c := range canaries {
		if strings.Contains(a.text, c.Text) && !strings.Contains(args, c.Text) {
			return c.Place
		}
	}
	if stacks().MatchString(a.text[:min(len(a.text), maxScanned)]) {
		return "where its program failed (a stack)"
	}
	if !hasSecret(args) && hasSecret(a.text) {
		return "something that looks like a secret"
	}
	return ""
}

// hasSecret reports whether a text has something that looks like a credential.
func hasSecret(text string) bool {
	text = text[:min(len(text), maxScanned)]
	return len(detect.New([]switchboard.Detector{switchboard.DetectSecret}).Find(text, "")) > 0
}

// wordsIn returns the rules about words that find something in the texts of an answer: orders for a model, and characters that turn or hide text.
func wordsIn(a *callAnswer) (rules []string) {
	text := textsOf(a)
	if strings.ContainsFunc(text, deceives) {
		rules = append(rules, "hidden characters")
	}
	definition := append(wire.AppendString([]byte(`{"name":"answer","description":`), text), '}')
	for _, f := range suspect.Find(switchboard.ToolID{Name: "answer"}, definition, &suspect.Peers{}) {
		if f.Tier == suspect.Looking && !slices.Contains(rules, f.Rule) {
			rules = append(rules, f.Rule)
		}
	}
	slices.Sort(rules)
	return rules
}

// deceives reports whether a character turns the direction of text, or is a tag, which nobody sees. Others that are not visible have a use: joiners in Persian and in emoji, colors
// of a terminal.
func deceives(r rune) bool {
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r >= 0xe0000 && r <= 0xe007f
}

// textsOf returns all texts of an answer, up to a length.
func textsOf(a *callAnswer) string {
	if a.result == nil {
		return strings.ToValidUTF8(a.why[:min(len(a.why), maxScanned)], "")
	}
	var b strings.Builder
	var collect func(v any)
	collect = func(v any) {
		switch v := v.(type) {
		case string:
			b.WriteString(v[:min(len(v), max(maxScanned-b.Len(), 0))])
			b.WriteByte('\n')
		case []any:
			for _, one := range v {
				collect(one)
			}
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if name != "data" && name != "blob" && b.Len() < maxScanned { // which are base64
					collect(v[name])
				}
			}
		}
	}
	if v, err := decodeSchema(a.result); err == nil && len(a.result) < 16*maxScanned {
		collect(v)
	}
	return strings.ToValidUTF8(b.String(), "")
}

// maxScanned limits how many bytes of an answer are read for words, stacks and secrets.
const maxScanned = 256 << 10
