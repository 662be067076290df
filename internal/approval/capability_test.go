package approval

import (
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestAYesToACapabilityIsForARunOrATaskAndForAtMostThirtyDays(t *testing.T) {
	now := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name  string
		given Grant
		want  Grant // the zero Grant: refused
	}{
		{"nothing said", Grant{}, Grant{ScopeRun, now.Add(8 * time.Hour)}},
		{"a task", Grant{Scope: ScopeTask}, Grant{ScopeTask, now.Add(8 * time.Hour)}},
		{"ten minutes", Grant{Until: now.Add(10 * time.Minute)}, Grant{ScopeRun, now.Add(10 * time.Minute)}},
		{"thirty days", Grant{Until: now.Add(MaxFor)}, Grant{ScopeRun, now.Add(MaxFor)}},
		{"more", Grant{Until: now.Add(MaxFor + time.Hour)}, Grant{}},
		{"no time", Grant{Until: now}, Grant{}},
		{"the past", Grant{Until: now.Add(-time.Hour)}, Grant{}},
		{"another scope", Grant{Scope: "tenant"}, Grant{}},
	} {
		r := &Request{Kind: ForCapability, Until: now.Add(time.Hour), Stored: Pending}
		next, err := r.Next(now, Step{Act: ActApprove, Vote: Vote{By: "lea"}, Grant: tt.given})
		if (tt.want == Grant{}) {
			if own, ok := err.(*switchboard.Error); !ok || own.Code != switchboard.CodeBadArguments { //nolint:errorlint // Next returns it as it is
				t.Errorf("%s: %+v, %v", tt.name, next, err)
			}
			continue
		}
		if err != nil || next.Grant != tt.want || next.StateAt(tt.want.Until.Add(-1)) != Approved || next.StateAt(tt.want.Until) != Expired {
			t.Errorf("%s: %+v, %v", tt.name, next, err)
		}
	}
}

func TestAStepThatComesTooLateSaysWhy(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		r    Request
		want string
	}{
		{Request{Stored: Pending}, "the request is pending, so there is no yes to take back; to end it, refuse it"},
		{Request{Stored: Used, Votes: []Vote{{By: "lea", Yes: true}}}, "the request is used already; lea had approved it"},
		{Request{Stored: Refused, Votes: []Vote{{By: "lea"}}}, "the request is refused already, by lea"},
	} {
		tt.r.Until = now.Add(time.Hour)
		if _, err := tt.r.Next(now, Step{Act: ActRevoke, By: "max"}); err == nil || err.Error() != tt.want {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}
