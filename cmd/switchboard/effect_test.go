package main

import (
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestTheSummaryOfAnEffectSaysWhyAClientReadsMoreAndWhatChangesIt(t *testing.T) {
	read := []string{"switchboard_read"}
	for want, e := range map[string]effect{
		"The client reads 97 % less before the first question; all 128 tools can still be called.":                                 {Tools: 128, Callable: 128, Before: 15521, Now: 591},
		"The client reads 50 % less before the first question; 1 of the 2 tools can be called.":                                    {Tools: 2, Callable: 1, Before: 100, Now: 50},
		"The client reads as much as before; all 2 tools can still be called.":                                                     {Tools: 2, Callable: 2, Before: 100, Now: 100},
		"What the client gets now is not known: no task":                                                                           {Why: "no task", Before: 100},
		"What the client gets is known after the sign-in at a, b.":                                                                 {Why: "no task", NeedsConnection: []switchboard.ServerID{"a", "b"}},
		"reads 1,010 tokens more than before: the configuration has other servers too (a, b), and their tools take 1,000 tokens. ": {Before: 100, Now: 1110, list: shownList{others: []switchboard.ServerID{"a", "b"}, othersTokens: 1000, own: read}},
		"the tools that stand for others (switchboard_status, x_helper) are larger than these. To list less, name a task":          {Before: 100, Now: 200, list: shownList{lazy: true, implied: true, own: []string{"switchboard_status", "x_helper"}}},
		"all tools fit into the budget of 8,000 tokens, so each is listed in full, and Switchboard adds switchboard_read and a few words about the servers. To list less, write a smaller token_budget": {
			Before: 100, Now: 200, Budget: 8000, list: shownList{implied: true, own: read},
		},
		"and Switchboard adds switchboard_read and a few words about the servers. To list less, name a task with --task": {Before: 100, Now: 200, Budget: 8000, list: shownList{own: read}},
	} {
		if got := e.summary(); !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}
