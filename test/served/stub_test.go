package served_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// Twelve ways in which models get a stub wrong. Each is served, or is answered with what to
// write, and with that the second attempt is right.
func TestFirstMinutes7WhatModelsGetWrongIsServedOrSaidInOneSentence(t *testing.T) {
	t.Parallel()
	const right = `{"bucket":"reports","key":"2026/q3/incidents.csv"}`
	sessions(t, layOut(t, lazily(8000, "")), func(t *testing.T, name string, s session) {
		for _, tt := range []struct {
			wrong, args string
			told        bool // it is not served
		}{
			{"flat arguments", `{"action":"call","tool":"s3_get_object","bucket":"reports","key":"2026/q3/incidents.csv"}`, false},
			{"arguments as text", `{"action":"call","tool":"s3_get_object","arguments":"{\"bucket\":\"reports\",\"key\":\"2026/q3/incidents.csv\"}"}`, false},
			{"no action", `{"tool":"s3_get_object","arguments":` + right + `}`, false},
			{"the tool as action", `{"action":"s3_get_object","arguments":` + right + `}`, false},
			{"an action in capitals", `{"action":"CALL","tool":"s3_get_object","arguments":` + right + `}`, false},
			{"params for arguments", `{"action":"call","tool":"s3_get_object","params":` + right + `}`, false},
			{"tools for tool", `{"action":"call","tools":["s3_get_object"],"arguments":` + right + `}`, false},
			{"another action", `{"action":"invoke","tool":"s3_get_object","arguments":` + right + `}`, true},
			{"a guessed name", `{"action":"call","tool":"get_s3_object","arguments":` + right + `}`, true},
			{"a name in capitals", `{"action":"call","tool":"S3_Get_Object","arguments":` + right + `}`, true},
			{"a name with a prefix", `{"action":"call","tool":"mcp__aws__s3_get_object","arguments":` + right + `}`, true},
			{"no tool", `{"action":"call","arguments":` + right + `}`, true},
			{"arguments in two places", `{"action":"call","tool":"s3_get_object","arguments":{"bucket":"reports"},"key":"2026/q3/incidents.csv"}`, true},
		} {
			text, code := helper(t, s, tt.args)
			if !tt.told {
				if code != "" || strings.Contains(text, "NoSuchKey") {
					t.Errorf("%s: %s: %s %s", name, tt.wrong, code, text)
				}
				continue
			}
			// A model that knows nothing else writes what it is told to.
			example := text[max(0, strings.LastIndex(text, `{"action"`)):]
			example, _, _ = strings.Cut(example, "}")
			example = strings.NewReplacer("NAME", "s3_get_object", `"arguments":{`, `"arguments":`+right).Replace(example) + "}"
			if strings.Contains(example, `"search"`) { // it was told how to find the name
				found, _ := helper(t, s, `{"action":"search","query":"get an s3 object"}`)
				if !strings.Contains(found, "- s3_get_object (") {
					t.Errorf("%s: %s: it is told %s, and finds %s", name, tt.wrong, text, found)
				}
				continue
			}
			if !json.Valid([]byte(example)) {
				t.Errorf("%s: %s: it is told %s", name, tt.wrong, text)
				continue
			}
			if again, code := helper(t, s, example); code != "" || strings.Contains(again, "NoSuchKey") {
				t.Errorf("%s: %s: it is told %s\nand with %s it gets %s %s", name, tt.wrong, text, example, code, again)
			}
		}
	})
}
