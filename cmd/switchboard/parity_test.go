package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/admin/api"
)

// parity says for each command which operations of the API do the same, or why there is none.
var parity = map[string][]string{
	"status":         {"read-status"},
	"now":            {"read-now"},
	"doctor":         {"here: it looks at this machine"},
	"metrics":        {"scrape-metrics", "read-history"},
	"ready":          {"agents: /readyz"},
	"server list":    {"list-servers"},
	"server show":    {"read-server"},
	"server probe":   {"probe-server"},
	"server disable": {"disable-server"},
	"server enable":  {"enable-server"},
	"server restart": {"restart-server"},
	"server add":     {"change-file"},
	"server update":  {"here: it asks npm, and writes a file that is reviewed like code"},
	"server connect": {"here: it opens the store, and the browser comes back to it"}, "server disconnect": {"here: it opens the store"},
	"server remove":   {"change-file"},
	"search":          {"search-tools"},
	"annotate":        {"list-tools", "list-suggestions", "accept-suggestions"},
	"tools":           {"make-decision", "list-tasks"}, // of one task, or of many
	"explain":         {"make-decision"},
	"resolve":         {"resolve-capabilities"},
	"tasks":           {"list-tenants"},
	"capability list": {"here: it reads files"}, "capability show": {"here: it reads files"}, "capability publish": {"here: it writes a file that is reviewed like code"},
	"runs":           {"list-runs"},
	"events":         {"follow-events"},
	"budget status":  {"list-budgets"},
	"budget what-if": {"forecast-budget"},
	"budget adjust":  {"adjust-budget"},
	"memory tool":    {"read-tool-memory"}, "memory gaps": {"read-gaps"}, "memory similar": {"read-similar-tools"}, "memory errors": {"read-tool-errors"},
	"memory rebuild": {"here: it opens the store"}, "suggest ranking": {"suggest-ranking", "create-proposal"},
	"approvals list": {"list-approvals"}, "approvals show": {"read-approval"}, "approvals approve": {"approve"}, "approvals refuse": {"refuse"},
	"approvals standing list": {"list-standing-approvals"}, "approvals standing make": {"make-standing-approval"}, "approvals standing end": {"end-standing-approval"},
	"approvals revoke": {"revoke-approval"}, "approvals watch": {"follow-events", "list-approvals"},
	"call":              {"agents: /mcp"},
	"try":               {"read-try", "make-try", "read-try-outcome"},
	"validate":          {"change-file"}, // with dry_run
	"config files":      {"list-files"},
	"config get":        {"read-file"},
	"config put":        {"change-file"},
	"config delete":     {"delete-file"},
	"config history":    {"list-changes"},
	"config show":       {"read-change"},
	"config revert":     {"revert-change"},
	"acquisitions list": {"list-acquisitions"}, "acquisitions start": {"start-acquisition"}, "acquisitions show": {"read-acquisition"}, "acquisitions review": {"review-acquisition"},
	"proposals list": {"list-proposals"}, "proposals create": {"create-proposal"}, "proposals show": {"read-proposal"}, "proposals diff": {"read-proposal"},
	"proposals approve": {"approve-proposal"}, "proposals refuse": {"refuse-proposal"}, "proposals apply": {"apply-proposal"}, "proposals roll-back": {"roll-back-proposal"},
	"key new":        {"here: the key must not leave the machine that makes it"},
	"key list":       {"list-keys"},
	"key rotate":     {"here: the key must not leave the machine that makes it"},
	"key revoke":     {"revoke-key"},
	"page":           {"make-page-code"},
	"verify":         {"plan-verification", "start-verification", "read-verification"},
	"pins list":      {"list-pins"},
	"pins diff":      {"read-pin"},
	"pins accept":    {"accept-pin"},
	"pins suspend":   {"suspend-pin"},
	"pins retire":    {"retire-pin"},
	"pins deprecate": {"deprecate-pin"},
	"person block":   {"block-person"},
	"person unblock": {"unblock-person"},
	"person blocked": {"list-blocks"},
	"sessions list":  {"list-sessions"},
	"sessions end":   {"end-session"},
	"decisions list": {"search-decisions"},
	"decisions show": {"read-decision"},
	"receipts list":  {"search-receipts"},
	"receipts show":  {"read-receipt"},

	"config set": {"edit-file"},

	"receipts replay": {"start-policy-diff", "read-policy-diff"}, // without layers and files
	"receipts verify": {"verify-receipts"},
	"receipts export": {"export-receipts"},
	"receipts rotate": {"here: the key file is on this machine"},
	"policy test":     {"test-policies"},
	"policy list":     {"read-policies"},
	"policy rules":    {"count-policy-rules"},
	"policy check":    {"check-policies"},
	"policy eval":     {"eval-policies"},
	"policy diff":     {"start-policy-diff", "read-policy-diff", "cancel-policy-diff"},

	"serve": {"here: it is what serves"}, "stdio": {"here: it is what serves"}, "demo": {"here: it is what serves"},
	"connect": {"here: it changes files of other programs"}, "disconnect": {"here: it changes files of other programs"}, "import": {"here: it reads files of other programs"},
	"store check": {"here: it opens the store"}, "store export": {"here: it opens the store"}, "store import": {"here: it opens the store"}, "store accept": {"here: it opens the store"},
	"logs": {"here: it reads files"}, "schema": {"here: it needs nothing"}, "help": {"here: it needs nothing"}, "docs": {"here: it needs nothing"}, "completion": {"here: it needs nothing"}, "version": {"here: it needs nothing"},
}

// What people can do by commands, programs can do by the API, and the other way round; what is missing is in the table.
func TestCommandsAndTheAPICanDoTheSame(t *testing.T) {
	text, err := api.Document("test")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			ID string `json:"operationId"`
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	operations, used := map[string]bool{}, map[string]bool{}
	for _, item := range doc.Paths {
		for _, op := range item {
			operations[op.ID] = true
		}
	}
	var c cli
	parser, err := newParser(&c, streams{out: io.Discard, err: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]bool{}
	for _, leaf := range parser.Model.Leaves(true) {
		command := leaf.Path()
		commands[command] = true
		if len(parity[command]) == 0 {
			t.Errorf("%s is not in the table: say which operations do the same, or why there is none", command)
		}
		for _, id := range parity[command] {
			used[id] = true
		}
	}
	for command, ids := range parity {
		if !commands[command] {
			t.Errorf("there is no command %q", command)
		}
		for _, id := range ids {
			if !strings.Contains(id, ":") && !operations[id] {
				t.Errorf("%s: there is no operation %q", command, id)
			}
		}
	}
	for id := range operations {
		if !used[id] {
			t.Errorf("no command does what %s does", id)
		}
	}
}
