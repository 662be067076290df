package receipt

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

// filled draws a value, which may be empty, for each field of v.
func filled(t *rapid.T, v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.UnixMicro(rapid.Int64Range(0, 1<<52).Draw(t, "time")).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			filled(t, field)
		}
	case reflect.String:
		if rapid.Bool().Draw(t, "there") {
			v.SetString(strings.ToValidUTF8(rapid.StringN(1, 60, maxText).Draw(t, "text"), "?"))
		}
	case reflect.Slice:
		n := rapid.IntRange(0, maxList).Draw(t, "length")
		if n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range n {
			filled(t, v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "flag"))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64Range(0, 1<<52).Draw(t, "number"))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "number"))
	default:
		t.Fatalf("%s cannot be drawn", v.Type())
	}
}

func TestEveryReceiptIsWrittenInCanonicalFormAndReadBackUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Receipt
		filled(t, reflect.ValueOf(&r).Elem())
		r.V, r.Kind = version, "x"
		if r.Lost.Receipts == 0 {
			r.Lost.Since = time.Time{}
		}
		if r.Pins.Changes == 0 {
			r.Pins = PinsReport{}
		}
		if len(r.Hold.Accounts) == 0 {
			r.Hold.Group = ""
		}
		if r.Hold.ID == "" {
			r.Hold = IntentHold{}
		}
		for i, d := range r.Rulings { // an empty digest is left out
			if d == "" {
				r.Rulings[i] = "d"
			}
		}
		text := r.append(nil)
		if form, err := canonical.Append(nil, text); err != nil || !bytes.Equal(form, text) {
			t.Fatalf("%v\n%s is not in canonical form\n%s", err, text, form)
		}
		var back Receipt
		if err := back.decode(text); err != nil || !reflect.DeepEqual(back, r) {
			t.Fatalf("%v\n%+v became\n%+v", err, r, back)
		}
	})
}

func TestTextsFromOutsideAreCutAndEscaped(t *testing.T) {
	for in, want := range map[string]string{
		"line\n{\"kind\":\"x\"}\x1b[2J": "line\n{\"kind\":\"x\"}\x1b[2J",
		"\xff":                          "\ufffd",
		strings.Repeat("a", 300):        strings.Repeat("a", 256) + "…",
		strings.Repeat("ž", 300):        strings.Repeat("ž", 128) + "…",
		"a" + strings.Repeat("ž", 300):  "a" + strings.Repeat("ž", 127) + "…",
		strings.Repeat("\xff", 300):     strings.Repeat("\ufffd", 256) + "…",
	} {
		r := Receipt{Kind: Call, Tool: in, Time: time.Unix(0, 0)}
		text := r.append(nil)
		if bytes.ContainsAny(text, "\n\x1b") || !utf8.Valid(text) {
			t.Errorf("%q", text)
		}
		var back Receipt
		if err := back.decode(text); err != nil || back.Tool != want {
			t.Errorf("%.20q became %.20q… (%d bytes), %v", in, back.Tool, len(back.Tool), err)
		}
	}
}

func TestAReceiptOfALaterVersionIsReadWithoutItsUnknownMembers(t *testing.T) {
	var r Receipt
	if err := r.decode([]byte(`{"kind":"call","weather":7,"time":"2026-11-22T03:27:00.000000Z","tool":"t","v":2}`)); err != nil || r.V != 2 || r.Tool != "t" {
		t.Errorf("%+v, %v", r, err)
	}
	for _, text := range []string{`{}`, `[]`, `{"kind":"call","v":1}`, `{"Kind":"call","time":"2026-11-22T03:27:00Z","v":1}`} {
		if err := new(Receipt).decode([]byte(text)); err == nil {
			t.Errorf("%s passes", text)
		}
	}
}

func TestIDs(t *testing.T) {
	for _, id := range []string{"n1/1", "Node_2.example-x/18446744073709551615", "n1/2026-11-22T03:27:00.000001Z"} {
		node, seq, when, err := ParseID(id)
		if err != nil || ID(node, seq) != id && (seq != 0 || TimeID(node, when) != id) {
			t.Errorf("%s: %s %d %s %v", id, node, seq, when, err)
		}
	}
	for _, id := range []string{"", "n1", "n1/", "/1", "n1/0", "n1/01", "n1/+1", "n1/-1", "a/b/1", "n 1/1", strings.Repeat("n", 65) + "/1", "n1/18446744073709551616", "n1/2026-11-22T03:27:00Z", "n1/2026-11-22T03:27:00.0000001Z", "/2026-11-22T03:27:00.000001Z"} {
		if _, _, _, err := ParseID(id); err == nil {
			t.Errorf("%s passes", id)
		}
	}
}

func TestDigestsRevealNothingWithoutTheKeyOfTheTenant(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	of := func(secret, tenant, method, params string) string {
		return NewDigests(switchboard.NewSecret(secret)).Request(&switchboard.Call{Principal: switchboard.Principal{Tenant: switchboard.TenantID(tenant)}, Method: method, Params: []byte(params)})
	}
	const call = "tools/call"
	base := of("s", "t", call, `{"name":"x","arguments":{"a":1,"b":"é"}}`)
	if !strings.HasPrefix(base, "hmac-sha256:") || len(base) != len("hmac-sha256:")+43 {
		t.Errorf("got %s", base)
	}
	for _, same := range []string{`{"arguments":{ "b":"\u00e9", "a":1 },"name":"y","_meta":{"k":1}}`} {
		if of("s", "t", call, same) != base {
			t.Errorf("%s has another digest", same)
		}
	}
	for name, other := range map[string]string{
		"another secret":             of("z", "t", call, `{"arguments":{"a":1,"b":"é"}}`),
		"another tenant":             of("s", "u", call, `{"arguments":{"a":1,"b":"é"}}`),
		"another spelling of 1":      of("s", "t", call, `{"arguments":{"a":1.0,"b":"é"}}`),
		"no arguments":               of("s", "t", call, `{"name":"x"}`),
		"not a tool":                 of("s", "t", "resources/read", `{"a":1,"b":"é"}`),
		"what has no canonical form": of("s", "t", call, `{"arguments":`+strings.Repeat(`[`, 65)+strings.Repeat(`]`, 65)+`}`),
	} {
		if (other == base) != (name == "not a tool") {
			t.Errorf("%s: %s", name, other)
		}
	}
	if of("s", "t", call, `{}`) != of("s", "t", call, `{"arguments":{}}`) {
		t.Error("no arguments and none of them differ")
	}
	if of("s", "t", "resources/read", `{"uri":"u","_meta":{"progressToken":1}}`) != of("s", "t", "resources/read", `{"uri":"u"}`) {
		t.Error("_meta counts")
	}
	if NewDigests(switchboard.NewSecret("s")).resultDigest("t", []byte(`{"a":1,"b":"é"}`)) == base {
		t.Error("a result passes for arguments")
	}
}

// This test fixes the stored format for ever: a chain with a fixed key at fixed times.
func TestTheStoredFormatOfAChainHasNotChanged(t *testing.T) {
	s, err := newSigner(switchboard.NewSecret("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"))
	if err != nil {
		t.Fatal(err)
	}
	when := time.Date(2026, 11, 22, 3, 27, 0, 123456789, time.UTC)
	c := &switchboard.Call{
		Principal: switchboard.Principal{Tenant: "acme", ID: "ci", Auth: switchboard.AuthAPIKey}, Method: "tools/call",
		Params: []byte(`{"name":"send","arguments":{"to":"ops"}}`),
	}
	d := NewDigests(switchboard.NewSecret("a secret"))
	about := Receipt{
		Time: when, Kind: Intent, Tenant: "acme", Task: "work", Run: "00112233445566778899aabbccddeeff", Method: "tools/call",
		Principal: Subject{"ci", switchboard.AuthAPIKey, switchboard.Autopilot}, Server: "notifier", Tool: "send\n\x1b", Effect: true,
		Arguments: d.Request(c), Decision: canonical.Sum([]byte("decision")), Basis: canonical.Sum([]byte("basis")),
	}
	came := about
	came.Kind, came.Of, came.Outcome, came.Code, came.Took = Call, "n1/2", Failed, switchboard.CodeServerFailed, CallTime{1234, 12}
	came.Rulings, came.ServedBy = []switchboard.Digest{canonical.Sum([]byte("ruling"))}, "other/send"
	came.Tries = []FailedAttempt{{Tool: "notifier/send\n\x1b", Code: switchboard.CodeServerUnreachable, Of: "n1/2"}}
	came.Result, came.Given = d.resultDigest("acme", []byte("{}")), switchboard.GivenCache
	asked, decided, priced, paid := about, about, about, came
	asked.Kind, asked.Approval = Ask, ApprovalRef{Request: "k3fq-2"}
	decided.Kind, decided.Approval, decided.Note = Decide, ApprovalRef{Request: "k3fq-2", Decision: "approve"}, "fine"
	priced.Price, priced.Approval = PriceMark{Held: 3100}, ApprovalRef{Request: "k3fq-2", Standing: "s1"}
	priced.Hold = IntentHold{ID: "H", Group: "budget/acme", TTL: 60e6, Number: 7, Accounts: []HeldAccount{
		{Name: strings.Repeat("paid/", 100), Amount: 3100, Ends: when}, {Name: "ever", Amount: 1},
	}}
	paid.Price, paid.Approval = PriceMark{Held: 3100, Settled: 31}, priced.Approval
	frozen := ChangedPin{Kind: "tool", Name: "send\n\x1b", State: "frozen", Class: "words", Admitted: "d1:0", Offered: "d1:1", Why: "its server offers another definition"}
	for file, all := range map[string][]Receipt{
		"testdata/pins.jsonl": {
			{Time: when, Kind: Pin, Server: "notifier", Tools: []string{"notifier/send\n\x1b"}, Note: "1 frozen", Pins: PinsReport{when, 3, 1, []ChangedPin{frozen}}},
			{Time: when, Kind: Pin, Server: "notifier", Note: "4096 suspended", Pins: PinsReport{when, 8192, 4096, slices.Repeat([]ChangedPin{{Kind: "prompt", Name: "p", State: "suspended"}}, 101)}},
		},
		"testdata/chain.jsonl": {
			{Time: when, Kind: KeyKind, Key: ChainKey{"n1", s.public}},
			about, came,
			{Time: when, Kind: LostKind, Lost: LossReport{7, when}},
			{Time: when, Kind: TrimKind, Trim: Trim{3, EmptyDigest, s.public}},
		},
		"testdata/priced.jsonl": {asked, decided, priced, paid},
	} {
		checkStoredFormat(t, file, when, s, all)
	}
}

// checkStoredFormat compares the chain of these receipts with a file.
func checkStoredFormat(t *testing.T, file string, when time.Time, s *signer, all []Receipt) {
	var text []byte
	prev := EmptyDigest
	for i, r := range all {
		e := appendEntry(nil, prev, r.append(nil), uint64(i+1))
		if i != 1 {
			e = appendSignature(e, 0, s)
		}
		if _, err := parseEntry("n1", uint64(i+1), e); err != nil {
			t.Error(err)
		}
		prev = canonical.Sum(e)
		text = append(append(text, e...), '\n')
	}
	mark := Checkpoint{V: version, Node: "n1", Seq: uint64(len(all)), Digest: prev, Time: when, Key: s.public, Signature: "x"}
	text = append(append(text, mark.Line()...), '\n')
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(want, text) {
		t.Errorf("%s: %v; got\n%s", file, err, text)
	}
}

// FuzzParse checks that parseEntry accepts exactly one spelling of an entry: no two texts have the
// same meaning, and a signed entry cannot be read in two ways.
func FuzzParse(f *testing.F) {
	golden, err := os.ReadFile("testdata/chain.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(golden) {
		f.Add(bytes.TrimSpace(line))
	}
	f.Add(bytes.Replace(golden[:bytes.IndexByte(golden, '\n')], []byte(`,"seq"`), []byte(`, "seq"`), 1))
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := parseEntry("n1", 1, bytes.Clone(raw))
		if err != nil {
			if e.Fault == nil || !bytes.Equal(e.Raw, raw) {
				t.Errorf("%q: %+v", raw, e)
			}
			return
		}
		form, err := canonical.Append(nil, raw)
		if err != nil || !bytes.Equal(form, raw) || !bytes.HasPrefix(raw, []byte(`{"prev":"`)) {
			t.Fatalf("%q is no entry, or has another spelling: %v", raw, err)
		}
		if _, err := e.verifySignature(); err == nil {
			for i := int(raw[len(raw)-3]) % 13; i < len(raw); i += 13 { // every thirteenth byte
				changed := bytes.Clone(raw)
				changed[i] ^= 1
				if e, err := parseEntry("n1", 1, changed); err == nil {
					if _, err := e.verifySignature(); err == nil {
						t.Fatalf("%q passes for %q", changed, raw)
					}
				}
			}
		}
	})
}
