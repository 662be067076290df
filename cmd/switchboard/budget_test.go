package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/budget"
)

// wideSpace is between the columns of a table.
var wideSpace = regexp.MustCompile(` {2,}`)

func TestAccountsSayByWhichCallsTheirPaceIsKnown(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	used := now.Add(time.Hour)
	for name, tt := range map[string]struct {
		pace budget.AccountPace
		want string
	}{
		"of the whole week":   {budget.AccountPace{}, "it has no end  -  -  -"},
		"used up":             {budget.AccountPace{DayUsedUp: used}, "it has no end  2026-11-28T13:00:00Z  -  -"},
		"of an hour of calls": {budget.AccountPace{DayUsedUp: used, Since: now.Add(-time.Hour)}, "it has no end  2026-11-28T13:00:00Z  -  2026-11-28T11:00:00Z"},
		"not known yet":       {budget.AccountPace{Since: now.Add(-time.Second)}, "it has no end  not known yet  not known yet  2026-11-28T11:59:59Z"},
	} {
		var b strings.Builder
		if err := writeAccounts(&b, []budget.StatementRow{{Tenant: "acme", Budget: "row/total", Pace: tt.pace}}, now); err != nil {
			t.Fatal(err)
		}
		head, row, _ := strings.Cut(strings.TrimSpace(b.String()), "\n")
		if !strings.HasSuffix(head, "BY THE CALLS SINCE") || !strings.HasSuffix(wideSpace.ReplaceAllString(row, "  "), tt.want) {
			t.Errorf("%s:\n%s", name, b.String())
		}
	}
}
