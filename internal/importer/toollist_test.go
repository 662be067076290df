package importer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/importer"
	"github.com/summit-switchboard/switchboard/test/configtest"
)

// A list that holds tools back refuses the file, and leaves the server out of an import. A list that holds nothing back is ignored without a note.
func TestOnlyAListThatHoldsToolsBackIsAFault(t *testing.T) {
	const (
		back = `holds tools back`
		none = `is an empty list`
	)
	deny := []string{"disabledTools", "disabled_tools", "excludeTools", "exclude_tools"}
	allow := []string{"tools", "enabledTools", "enabled_tools", "includeTools", "include_tools", "allowedTools", "allowed_tools", "toolFilter"}
	for _, tt := range []struct {
		keys  []string
		value string
		fault string // "" if the list is ignored
		rule  string // that the fault names
	}{
		{deny, `[]`, "", ""},
		{deny, `null`, "", ""},
		{deny, `["delete"]`, back, `{deny: ["SERVER/TOOL"]}`},
		{deny, `["*"]`, back, `{deny: ["SERVER/TOOL"]}`},
		{deny, `{}`, back, `{deny: ["SERVER/TOOL"]}`},
		{deny, `"delete"`, back, `{deny: ["SERVER/TOOL"]}`},
		{allow, `["*"]`, "", ""},
		{allow, `["prog", "*"]`, "", ""},
		{allow, `null`, "", ""},
		{allow, `["prog", "meta"]`, back, `{allow: ["SERVER/TOOL"]}`},
		{allow, `["prog*"]`, back, `{allow: ["SERVER/TOOL"]}`},
		{allow, `[["*"]]`, back, `{allow: ["SERVER/TOOL"]}`},
		{allow, `{"*": true}`, back, `{allow: ["SERVER/TOOL"]}`},
		{allow, `"*"`, back, `{allow: ["SERVER/TOOL"]}`},
		{allow, `[]`, none, `"disabled": true`},
	} {
		for _, key := range tt.keys {
			entry := fmt.Sprintf(`%q: %s`, key, tt.value)
			opts := config.Options{Env: configtest.Env, Text: []byte(`{"mcpServers": {"a": {"command": "x", ` + entry + `}, "b": {"command": "y"}}}`)}
			c, loaded, err := importer.Load("mcp.json", opts)
			_, _, joined, joinErr := importer.Join("mcp.json", opts, importer.Present{})
			if joinErr != nil {
				t.Fatalf("%s: %v", entry, joinErr)
			}
			if tt.fault == "" {
				if err != nil || len(c.Servers) != 2 || len(loaded[0].Notes) > 0 || joined[0].ID != "a" || len(joined[0].Notes) > 0 {
					t.Errorf("%s is not ignored: %v, %+v, %+v", entry, err, loaded, joined)
				}
				continue
			}
			for _, want := range []string{fmt.Sprintf("%q %s", key, tt.fault), tt.rule} {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("%s: the fault of Load is %v, want %q", entry, err, want)
				}
				if joined[0].ID != "" || len(joined[0].Notes) != 1 || !strings.Contains(joined[0].Notes[0], want) {
					t.Errorf("%s: Join says %+v, want %q", entry, joined[0], want)
				}
			}
		}
	}
}
