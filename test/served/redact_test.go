package served_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// 200 results that repeat what a policy redacts: as servers do, and as one would that wants it seen.
func TestNames7WhatIsRedactedIsInNoByteThatTheClientGets(t *testing.T) {
	t.Parallel()
	disguised(t, "fields", `"fields": ["/structuredContent/user/secret"]`,
		`"ann@example.com"`, `"+49 30 1234567"`, `"Ünïcødé 😀/x"`, `"a \"quoted\" one"`, `48123.75`, `123456789`, `"C:\\users\\ann"`, `"line one\nline two"`, `"DE89 3704 0044 0532 0130 00"`, `"x-secret-7"`)
}

// The same of what detectors find, wherever it stands.
func TestNames16WhatADetectorFindsIsInNoByteThatTheClientGets(t *testing.T) {
	t.Parallel()
	disguised(t, "detectors", `"detectors": ["email", "phone", "card", "iban", "ip", "secret"]`,
		`"ann@example.com"`, `"jürgen@müller.example"`, `"+49 30 1234567"`, `"4111 1111 1111 1111"`, `4111111111111111`, `"DE89 3704 0044 0532 0130 00"`, `"192.0.2.17"`, `"2001:db8::17"`,
		`"postgres://ann:s3cr3t-pw@localhost/x"`, `"Authorization: Bearer abc.def123-ghi"`)
}

// disguised has a policy redact each of the values, which a server repeats in many ways, for clients of both eras.
func disguised(t *testing.T, by, redact string, values ...string) {
	t.Helper()
	law.Hold(t, law.NothingLeaks)
	quoted := func(s string) string {
		b, _ := json.Marshal(s)
		return string(b)
	}
	escaped := func(s string) string {
		var b strings.Builder
		for _, c := range s {
			if c < 0x10000 && c > ' ' && c != '"' && c != '\\' {
				fmt.Fprintf(&b, `\u%04x`, c)
			} else {
				one := quoted(string(c))
				b.WriteString(one[1 : len(one)-1])
			}
		}
		return `"` + b.String() + `"`
	}
	texts := map[string]func(raw, plain string) string{
		"mirrored":  func(raw, _ string) string { return quoted(`{"id":1,"user":{"secret":` + raw + `}}`) },
		"reordered": func(raw, _ string) string { return quoted(`{"user":{"secret":` + raw + `},"id":1.0}`) },
		"pretty-printed": func(raw, _ string) string {
			return quoted("{\n  \"id\": 1,\n  \"user\": {\n    \"secret\": " + raw + "\n  }\n}")
		},
		"a part":                            func(raw, _ string) string { return quoted(`{"secret":` + raw + `}`) },
		"embedded in prose":                 func(raw, _ string) string { return quoted(`It says {"secret":` + raw + `}, as it must.`) },
		"plain":                             func(_, plain string) string { return quoted("It is " + plain + ".") },
		"escaped twice":                     func(raw, _ string) string { return quoted(`log ` + quoted(`{"secret":`+raw+`}`)) },
		"escaped thrice":                    func(raw, _ string) string { return quoted(quoted(quoted(`{"secret":` + raw + `}`))) },
		"unicode escapes":                   func(_, plain string) string { return escaped("It is " + plain + ".") },
		"unicode escapes in JSON in a text": func(_, plain string) string { return quoted(`see {"secret":` + escaped(plain) + `} there`) },
	}
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "find")))+
		"-- policies/redact.rego --\npackage switchboard\n"+rig.AllowAll+`obligations[c.id] contains {"type": "redact", `+redact+`} if some c in input.candidate_tools`+"\n")
	n := 0
	rig.EachSession(t, dir, func(t *testing.T, who string, s rig.Session) {
		if strings.HasPrefix(who, "stdio") && strings.HasSuffix(who, "legacy") {
			return // two of each era are enough
		}
		for _, raw := range values {
			var plain string
			if json.Unmarshal([]byte(raw), &plain) != nil {
				plain = raw
			}
			secret := strings.TrimPrefix(plain, "Authorization: Bearer ") // the rest of these is shown
			if _, after, ok := strings.Cut(plain, "://ann:"); ok && by == "detectors" {
				secret, _, _ = strings.Cut(after, "@")
			}
			for name, text := range texts {
				n++
				result := `{"content":[{"type":"text","text":` + text(raw, plain) + `}],"structuredContent":{"id":1,"user":{"secret":` + raw + `}}}`
				m, _ := s.Ask(t, "tools/call", `{"name":"find","arguments":{"do":"result","bytes":`+quoted(result)+`}}`)
				left := string(m.Raw)
				if rig.Code(m) != "" || !strings.Contains(left, "[redacted]") {
					t.Errorf("%s, %s, %s: %s", who, name, raw, left)
				}
				for range 5 {
					if strings.Contains(left, secret) {
						t.Errorf("%s, %s: %s is left in %s", who, name, raw, m.Raw)
						break
					}
					left = unescapedOnce(left)
				}
			}
		}
	})
	if n < 200 {
		t.Errorf("%d results were tried, want 200", n)
	}
}

// unescapedOnce resolves the escapes of JSON in a text, as far as they are some.
func unescapedOnce(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		var one string
		switch {
		case text[i] != '\\':
			b.WriteByte(text[i])
			continue
		case i+5 < len(text) && text[i+1] == 'u':
			end := i + 6
			if strings.HasPrefix(text[end:], `\u`) && end+6 <= len(text) { // perhaps a pair
				if json.Unmarshal([]byte(`"`+text[i:end+6]+`"`), &one) == nil && len([]rune(one)) == 1 {
					b.WriteString(one)
					i = end + 5
					continue
				}
			}
			if json.Unmarshal([]byte(`"`+text[i:end]+`"`), &one) == nil {
				b.WriteString(one)
				i = end - 1
				continue
			}
		case i+1 < len(text) && json.Unmarshal([]byte(`"`+text[i:i+2]+`"`), &one) == nil:
			b.WriteString(one)
			i++
			continue
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// A tool that nobody calls pii_safe is what a task gets that asks for it, if the operator has its results redacted of all
// personal data. A label is not enough then: what is redacted stays so, also in progress and errors, for clients that
// list once, and is no more when the operator says so.
func TestNames16AToolIsPIISafeByWhatTheOperatorHasRedacted(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	const all = "[email, phone, card, iban]"
	dir := rig.LayOut(t, `
-- switchboard.yaml --
start_deadline: 30s
servers:
  `+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "find"))+`
  `+rig.FakeRow("b", fmt.Sprintf(rig.Tool, "grep"))+`
tenants:
  default: {servers: ["*"]}
-- overlays/a.yaml --
server: a
tools: {find: {capabilities: [{verb: read, resource: fs}], redact: `+all+`}}
-- overlays/b.yaml --
server: b
tools: {grep: {capabilities: [{verb: read, resource: fs}]}}
-- tenants/default/tenant.yaml --
tenant: default
default_task: safe
-- tenants/default/tasks/safe.yaml --
task_id: safe
required_capabilities: [{verb: read, resource: fs, constraints: [pii_safe]}]
`)
	const said, left = "ann@example.com, tel. +49 30 1234567, 192.0.2.17", "[redacted], tel. [redacted], 192.0.2.17"
	quoted, _ := json.Marshal(`{"content":[{"type":"text","text":"` + said + `"}]}`)
	find := `{"name":"find","arguments":{"do":"result","bytes":` + string(quoted) + `}}`
	rig.EachSession(t, dir, func(t *testing.T, who string, s rig.Session) {
		if got := rig.ListNames(t, s); fmt.Sprint(got) != "[find]" {
			t.Fatalf("%q are listed", got)
		}
		if m, _ := s.Ask(t, "tools/call", find); !strings.Contains(string(m.Raw), left) {
			t.Errorf("a result: %s", m.Raw)
		}
		failure, _ := json.Marshal(`{"code":-32000,"message":"` + said + `"}`)
		if m, _ := s.Ask(t, "tools/call", `{"name":"find","arguments":{"do":"error","bytes":`+string(failure)+`}}`); !strings.Contains(string(m.Raw), left) {
			t.Errorf("an error: %s", m.Raw)
		}
		m, before := s.Ask(t, "tools/call", `{"name":"find","arguments":{"do":"talk","times":"2","mark":"`+said+`"},"_meta":{"progressToken":"p"}}`)
		if heard := fmt.Sprintf("%s", before); !strings.Contains(heard, left) || strings.Contains(heard+string(m.Raw), "ann@") {
			t.Errorf("progress: %s\nand %s", heard, m.Raw)
		}
	})

	g := rig.Serve(t, dir, "--data", filepath.Join(t.TempDir(), "data"))
	out, _, code := rig.Command(t, dir, "explain", "--url", g.URL)
	if want := "pii_safe (enforced: overlays/a.yaml:2:"; code != 0 || !strings.Contains(out, want) || !strings.Contains(out, "redacts card, email, iban, phone") {
		t.Errorf("explain exits %d and says:\n%s", code, out)
	}
	s := g.Open(t, "/mcp", true)
	rig.WriteFile(t, filepath.Join(dir, "overlays/a.yaml"), "server: a\ntools: {find: {capabilities: [{verb: read, resource: fs, constraints: [pii_safe]}]}}\n")
	rig.Eventually(t, "the operator's word alone counts, and nothing is redacted", func() string {
		m, _ := s.Ask(t, "tools/call", find)
		return rig.ReasonUnless(strings.Contains(string(m.Raw), said), string(m.Raw))
	})
	rig.WriteFile(t, filepath.Join(dir, "overlays/a.yaml"), "server: a\ntools: {find: {capabilities: [{verb: read, resource: fs, constraints: [pii_safe]}], redact: [ip]}}\n")
	rig.Eventually(t, "another detector is asked for", func() string {
		m, _ := s.Ask(t, "tools/call", find)
		return rig.ReasonUnless(strings.Contains(string(m.Raw), "ann@example.com, tel. +49 30 1234567, [redacted]"), string(m.Raw))
	})
	rig.WriteFile(t, filepath.Join(dir, "overlays/a.yaml"), "server: a\ntools: {find: {capabilities: [{verb: read, resource: fs}], redact: [email]}}\n")
	rig.Eventually(t, "it is not pii_safe any more", func() string {
		m, _ := s.Ask(t, "tools/call", find)
		return rig.ReasonUnless(rig.Code(m) != "" && !strings.Contains(string(m.Raw), "ann@"), string(m.Raw))
	})
}
