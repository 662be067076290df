package main

import (
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/admin/past"
)

func TestAToolWithoutKnownCallsIsNotSaidToHaveNone(t *testing.T) {
	for name, tt := range map[string]struct {
		lacks past.MissingDays
		want  string
	}{
		"nothing is missing": {past.MissingDays{}, "tenant acme has not called web/find from 2026-11-01 to 2026-11-30\n"},
		"a crowded day": {
			past.MissingDays{Crowded: []string{"2026-11-03"}},
			"switchboard: not all tools of 2026-11-03 were kept, because there were too many: calls may be missing\n" +
				"tenant acme has not called web/find from 2026-11-01 to 2026-11-30, as far as is known\n",
		},
		"damaged pages": {
			past.MissingDays{Unreadable: []string{"2026-11-03", "2026-11-04", "2026-11-05", "2026-11-09"}},
			"switchboard: calls of 4 days, from 2026-11-03 to 2026-11-09, are missing, because pages of the memory were damaged; " +
				"\"switchboard memory rebuild\" counts again the days with all their receipts\n" +
				"tenant acme has not called web/find from 2026-11-01 to 2026-11-30, as far as is known\n",
		},
	} {
		var out strings.Builder
		writeMissing(&out, &tt.lacks)
		if err := writeToolReport(&out, &past.ToolReport{Tenant: "acme", Tool: "web/find", From: "2026-11-01", To: "2026-11-30", MissingDays: tt.lacks}); err != nil {
			t.Error(err)
		}
		if out.String() != tt.want {
			t.Errorf("%s: printed %q, want %q", name, out.String(), tt.want)
		}
	}
}
