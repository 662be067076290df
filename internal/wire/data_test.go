package wire_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

// data returns a folder with real data for tests. It skips the test if the folder is absent.
func data(t *testing.T, elem ...string) string {
	t.Helper()
	dir := realdata.File(elem...)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the data for this test is absent (set SWITCHBOARD_DATA to its folder): %v", err)
	}
	return dir
}

func TestJSONTestSuite(t *testing.T) {
	dir := data(t, "badinput", "JSONTestSuite", "test_parsing")
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) < 300 {
		t.Fatalf("%d files in %s: %v", len(files), dir, err)
	}
	// The suite leaves these open. We accept what every reader reads in the same way.
	open := map[string]bool{
		"i_number_double_huge_neg_exp.json":   true, // numbers keep their spelling
		"i_number_huge_exp.json":              true,
		"i_number_neg_int_huge_exp.json":      true,
		"i_number_pos_double_huge_exp.json":   true,
		"i_number_real_neg_overflow.json":     true,
		"i_number_real_pos_overflow.json":     true,
		"i_number_real_underflow.json":        true,
		"i_number_too_big_neg_int.json":       true,
		"i_number_too_big_pos_int.json":       true,
		"i_number_very_big_negative_int.json": true,
	}
	// Grammatical, but with a duplicate name.
	twice := map[string]bool{
		"y_object_duplicated_key.json":           true,
		"y_object_duplicated_key_and_value.json": true,
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			strict := strings.HasPrefix(name, "y_") && !twice[name] || open[name]
			quick := strings.HasPrefix(name, "y_") || open[name] || escapedSurrogates(name, text)

			in := []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"v":` + string(text) + `}}}`)
			if _, err := wire.Parse(in); (err == nil) != strict {
				t.Errorf("as an argument: accepted %v, want %v (%v)", err == nil, strict, err)
			}
			if _, err := wire.ParseEnvelope([]byte(`{"jsonrpc":"2.0","id":1,"result":` + string(text) + `}`)); (err == nil) != quick {
				t.Errorf("as a result: accepted %v, want %v (%v)", err == nil, quick, err)
			}
			// None of these files is a message.
			for what, parse := range map[string]func([]byte) (wire.Message, error){"Parse": wire.Parse, "ParseEnvelope": wire.ParseEnvelope} {
				if m, err := parse(text); err == nil {
					t.Errorf("%s of the bare file = %+v, want an error", what, m)
				}
			}
		})
	}
}

// escapedSurrogates reports whether the file of the suite is about lone surrogates written as escapes. They are
// grammatical, and accepted from a server.
func escapedSurrogates(name string, text []byte) bool {
	return strings.HasPrefix(name, "i_") && utf8.Valid(text) && strings.Contains(strings.ToLower(string(text)), `\ud`)
}

// TestNaughtyStrings sends each string as an id, a name and an argument, and checks that it comes back.
func TestNaughtyStrings(t *testing.T) {
	file := data(t, "badinput", "blns", "blns.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	if err := json.Unmarshal(text, &list); err != nil || len(list) < 400 {
		t.Fatalf("%d strings: %v", len(list), err)
	}
	for _, s := range list {
		raw := wire.AppendString(nil, s)
		if back, ok := wire.String(raw); !ok || back != s {
			t.Errorf("String(AppendString(%q)) = %q, %v", s, back, ok)
		}
		if back, ok := wire.DecodeHeader(wire.EncodeHeader(s)); !ok || back != s {
			t.Errorf("DecodeHeader(EncodeHeader(%q)) = %q, %v", s, back, ok)
		}
		args := wire.Rewrite(nil, nil, wire.Edit{Name: s, Value: raw})
		params := wire.Rewrite(nil, nil, wire.Edit{Name: "name", Value: raw}, wire.Edit{Name: "arguments", Value: args})
		m, err := wire.Parse(wire.AppendRequest(nil, raw, "tools/call", params))
		if len(raw) > wire.MaxIDBytes {
			if err == nil {
				t.Errorf("an id of %d bytes was accepted", len(raw))
			}
			m, err = wire.Parse(wire.AppendRequest(nil, []byte("1"), "tools/call", params))
		} else if key, ok := wire.IDKey(m.ID); !ok || key != `"`+s {
			t.Errorf("the id %q came back as %q", s, key)
		}
		if err != nil {
			t.Errorf("%q: %v", s, err)
			continue
		}
		if name, _ := wire.Field(m.Params, "name"); string(name) != string(raw) {
			t.Errorf("the name %q came back as %s", s, name)
		}
		back, _ := wire.Field(m.Params, "arguments")
		if value, ok := wire.Field(back, s); !ok || string(value) != string(raw) {
			t.Errorf("the argument %q came back as %s", s, back)
		}
		// Neither as the method, nor instead of a message, does it cause more than an error.
		_, _ = wire.Parse(wire.AppendRequest(nil, []byte("1"), s, nil))
		if _, err := wire.Parse([]byte(s)); err == nil {
			t.Errorf("%q is no message", s)
		}
	}
}
