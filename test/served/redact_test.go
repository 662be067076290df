package served_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
)

// 200 results that repeat what policy redacts: as servers do, and as one would that wants it seen.
func TestNames7WhatIsRedactedIsInNoByteThatTheClientGets(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	values := []string{`"ann@example.com"`, `"+49 30 1234567"`, `"Ünïcødé 😀/x"`, `"a \"quoted\" one"`, `48123.75`, `123456789`, `"C:\\users\\ann"`, `"line one\nline two"`, `"DE89 3704 0044 0532 0130 00"`, `"x-secret-7"`}
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
	dir := layOut(t, fakes(fakeServer("a", fmt.Sprintf(tool, "find")))+
		"-- policies/redact.rego --\npackage switchboard\n"+allowAll+`obligations[c.id] contains {"type": "redact", "fields": ["/structuredContent/user/secret"]} if some c in input.candidate_tools`+"\n")
	n := 0
	sessions(t, dir, func(t *testing.T, who string, s session) {
		if strings.HasPrefix(who, "stdio") && strings.HasSuffix(who, "legacy") {
			return // two of each era are enough
		}
		for _, raw := range values {
			var plain string
			if json.Unmarshal([]byte(raw), &plain) != nil {
				plain = raw
			}
			for name, text := range texts {
				n++
				result := `{"content":[{"type":"text","text":` + text(raw, plain) + `}],"structuredContent":{"id":1,"user":{"secret":` + raw + `}}}`
				m, _ := s.ask(t, "tools/call", `{"name":"find","arguments":{"do":"result","bytes":`+quoted(result)+`}}`)
				left := string(m.raw)
				if codeOf(m) != "" || !strings.Contains(left, "[redacted]") {
					t.Errorf("%s, %s, %s: %s", who, name, raw, left)
				}
				for range 5 {
					if strings.Contains(left, plain) {
						t.Errorf("%s, %s: %s is left in %s", who, name, raw, m.raw)
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
