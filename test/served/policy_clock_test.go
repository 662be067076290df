package served_test

import (
	"bufio"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// The shipped hours.rego, in a zone where it is about noon: whenever this runs,
// today's hours begin and end today.
func TestInBusinessHoursAToolIsListedAndItsCallsAreDenied(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	now := time.Now().UTC()
	ahead := 12 - now.Hour()
	zone := fmt.Sprintf("Etc/GMT%+d", -ahead) // the sign of these names is the other way round
	today := now.Add(time.Duration(ahead) * time.Hour).Weekday()
	hours := func(day time.Weekday, from, to string) string {
		return fmt.Sprintf(`{business_hours: {zone: %s, days: [%s], from: %q, to: %q, deny: [{tool: "a/ed*", verb: write}]}}`, zone, strings.ToLower(day.String()), from, to)
	}
	marks := filepath.Join(t.TempDir(), "marks")
	h := rig.ServeTenants(t, desk(marks), "", map[string]rig.TenantConfig{
		"open":     {Policy: hours(today, "10:00", "15:00")},
		"shut":     {Policy: hours(today, "01:00", "02:00")},
		"away":     {Policy: hours((today+3)%7, "10:00", "15:00")},
		"mistyped": {Policy: strings.Replace(hours(today, "01:00", "02:00"), "days", "dais", 1)},
		"nowhere":  {Policy: strings.Replace(hours((today+3)%7, "10:00", "15:00"), zone, "Etc/Nowhere", 1)},
	})
	for tenant, edit := range map[string]string{"open": "SB-POL-001", "shut": "", "away": "", "nowhere": "SB-POL-002"} {
		for name, s := range h.Clients(t, tenant) {
			if got := rig.ListNames(t, s); !slices.Equal(got, []string{"edit", "look"}) {
				t.Errorf("%s, %s: it lists %q", tenant, name, got)
			}
			before := rig.ReadFile(t, marks)
			m, _ := s.Ask(t, "tools/call", `{"name":"edit","arguments":{}}`)
			if got := rig.Code(m); got != edit || (rig.ReadFile(t, marks) != before) != (edit == "") {
				t.Errorf("%s, %s: edit: %s, want %q", tenant, name, m.Raw, edit)
			}
			if strings.Contains(string(m.Raw), "business") {
				t.Errorf("%s, %s: the caller is told of the rule: %s", tenant, name, m.Raw)
			}
			if got := rig.Call(t, s, "look", `{}`); got != "" && tenant != "nowhere" {
				t.Errorf("%s, %s: look: %s", tenant, name, got)
			}
		}
	}
	if m, _ := h.OpenAs("mistyped", true).Ask(t, "tools/list", ""); rig.Code(m) != "SB-POL-001" {
		t.Errorf("hours that are mistyped: %s", m.Raw)
	}
}

// turns hides one tool, and another with all that its server has, before and
// from an instant.
func turns(at time.Time) string {
	rule := `deny[%q] contains "x" if time.parse_rfc3339_ns(input.now) %s time.parse_rfc3339_ns(%q)` + "\n"
	instant := at.UTC().Format(time.RFC3339Nano)
	return rig.AllowAll + fmt.Sprintf(rule, "a/later", "<", instant) + fmt.Sprintf(rule, "b/sooner", ">=", instant)
}

func TestAListIsWhatPolicySaysAtTheMomentInWhichItIsAsked(t *testing.T) {
	law.Hold(t, law.OneDecision)
	marks := filepath.Join(t.TempDir(), "marks")
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+
		rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "always"), fmt.Sprintf(rig.Tool, "later"))+"\n  "+
		rig.FakeRow("b", "marks="+marks, `prompts={"name":"greet"}`, `resources={"uri":"doc://x","name":"x"}`, fmt.Sprintf(rig.Tool, "sooner"))+"\nTENANTS\n", "",
		map[string]rig.TenantConfig{"acme": {Rego: turns(time.Now().Add(time.Hour))}})
	clients := h.Clients(t, "acme")
	clients["a run of its own"] = h.Open(t, "/mcp/runs/"+rig.MintRun(t, h.Gateway, h.Keys["acme"], "all"), true, "Authorization", "Bearer "+h.Keys["acme"])
	for name, s := range clients {
		if got := rig.ListNames(t, s); !slices.Equal(got, []string{"always", "sooner"}) {
			t.Fatalf("%s lists %q", name, got)
		}
	}
	file := filepath.Join(h.Dir, "tenants/acme/policies/own.rego")
	turn := time.Now().Add(3 * time.Second)
	rig.ReplaceFile(t, file, "package switchboard.tenant\n"+turns(turn))
	h.Reload(t)
	legacy := clients["http/legacy"].(*rig.HTTPSession)
	heard := make(chan string, 1)
	rig.Listen(t, heard, "legacy", http.MethodGet, legacy.URL, "", http.Header{
		"Mcp-Session-Id": {legacy.ID}, "Mcp-Protocol-Version": {"2025-11-25"}, "Authorization": {"Bearer " + h.Keys["acme"]},
	})
	early := 0
	for name, s := range clients {
		got := rig.ListNames(t, s)
		if time.Now().After(turn) {
			break // what it was told may be either
		}
		if !slices.Equal(got, []string{"always", "sooner"}) {
			t.Errorf("%s, before the turn: it lists %q", name, got)
		}
		if got := rig.Call(t, s, "later", `{}`); got != "SB-CAP-001" && time.Now().Before(turn) {
			t.Errorf("%s, before the turn: later: %s", name, got)
		}
		early++
	}
	t.Logf("%d clients were asked before the turn", early)
	<-time.After(time.Until(turn))
	for name, s := range clients {
		if strings.HasPrefix(name, "stdio/") { // it reloads by itself, and may do so late
			rig.Eventually(t, "the file is read", func() string {
				if got := rig.ListNames(t, s); !slices.Equal(got, []string{"always", "later"}) {
					return fmt.Sprint(got)
				}
				return ""
			})
		}
		if got := rig.Call(t, s, "sooner", `{}`); got != "SB-CAP-001" {
			t.Errorf("%s, after the turn: sooner, which it has listed before: %s", name, got)
		}
		if m, _ := s.Ask(t, "prompts/list", ""); m.Error != nil || strings.Contains(string(m.Raw), "greet") {
			t.Errorf("%s, after the turn: %s", name, m.Raw)
		}
		if m, _ := s.Ask(t, "resources/list", ""); m.Error != nil || strings.Contains(string(m.Raw), "doc://x") {
			t.Errorf("%s, after the turn: %s", name, m.Raw)
		}
		if got := rig.ListNames(t, s); !slices.Equal(got, []string{"always", "later"}) {
			t.Errorf("%s, after the turn: it lists %q", name, got)
		}
		if got := rig.Call(t, s, "later", `{}`); got != "" {
			t.Errorf("%s, after the turn: later: %s", name, got)
		}
	}
	if x := h.Explain(t, "acme", "", ""); !strings.Contains(x, `"name":"later"`) || strings.Contains(x, `"name":"sooner"`) {
		t.Errorf("explain: %s", x)
	}
	if strings.Contains(rig.ReadFile(t, marks), "sooner") {
		t.Error("sooner was called")
	}
	wait.Receive(t, "that the list has changed", heard)
}

// Nobody asks here: it is the clock alone that changes the list.
func TestAClientHearsThatTheClockHasChangedItsList(t *testing.T) {
	t.Parallel() // it waits for a minute to begin that is not too near
	turn := time.Now().Add(30 * time.Second).Truncate(time.Minute).Add(time.Minute)
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "always"), fmt.Sprintf(rig.Tool, "later"))+"\n  "+
		rig.FakeRow("b", fmt.Sprintf(rig.Tool, "sooner"))+"\nTENANTS\n", "", map[string]rig.TenantConfig{"acme": {Rego: turns(turn)}})
	legacy := h.OpenAs("acme", false)
	pipe := rig.Stdio(t, h.Dir, false, "--tenant", "acme")
	for _, s := range []rig.Session{legacy, pipe} {
		if got := rig.ListNames(t, s); !slices.Equal(got, []string{"always", "sooner"}) {
			t.Fatalf("it lists %q", got)
		}
	}
	heard := make(chan string, 3)
	key := []string{"Bearer " + h.Keys["acme"]}
	rig.Listen(t, heard, "legacy", http.MethodGet, legacy.URL, "", http.Header{"Mcp-Session-Id": {legacy.ID}, "Mcp-Protocol-Version": {"2025-11-25"}, "Authorization": key})
	rig.Listen(t, heard, "modern", http.MethodPost, h.URL+"/mcp",
		`{"jsonrpc":"2.0","id":"mine","method":"subscriptions/listen","params":`+rig.WithMeta(`{"notifications":{"toolsListChanged":true}}`)+`}`,
		http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}, "Authorization": key})
	go func() {
		for lines := bufio.NewScanner(pipe.Out); lines.Scan(); {
			if strings.Contains(lines.Text(), "notifications/tools/list_changed") {
				heard <- "stdio"
				return
			}
		}
	}()
	for range 3 {
		select {
		case who := <-heard:
			if time.Now().Before(turn) {
				t.Errorf("%s heard of it too early", who)
			}
		case <-time.After(time.Until(turn) + rig.Patience):
			wait.Late(t, "a client was not told")
		}
	}
	if got := rig.Call(t, legacy, "later", `{}`); got != "" {
		t.Errorf("what was told of cannot be called: %s", got)
	}
}
