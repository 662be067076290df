package app

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/signin"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestTheNewestSessionOfAPersonCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := signin.NewSessions(store.NewMemory(), func() {}, func() {})
		defer s.Close()
		secrets := map[string]string{}
		for _, group := range []string{"leads", "staff", "guests"} {
			secret, err := s.Start(t.Context(), signin.Holder{Person: &identity.Person{Issuer: "idp", Subject: "ann", Claims: map[string][]string{"groups": {group}}}})
			if err != nil {
				t.Fatal(err)
			}
			secrets[group] = secret
			time.Sleep(time.Minute)
		}
		if _, err := s.Start(t.Context(), signin.Holder{Local: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(t.Context(), secrets["leads"]); err != nil { // a use makes no session newer
			t.Fatal(err)
		}
		for _, want := range []string{"guests", "staff", "leads"} {
			all, err := claimsOfSignedIn(s)
			if groups := all["idp/ann"]["groups"]; err != nil || len(all) != 1 || len(groups) != 1 || groups[0] != want {
				t.Errorf("%v, %v, want %s", all, err, want)
			}
			if err := s.EndOwn(t.Context(), secrets[want]); err != nil {
				t.Fatal(err)
			}
		}
		if all, err := claimsOfSignedIn(s); err != nil || len(all) > 0 {
			t.Errorf("after the last sign-out: %v, %v", all, err)
		}
	})
}

func TestPersonsWhoMayCallAreUsersBesideTheLocalOne(t *testing.T) {
	calls := switchboard.CallRights{Tasks: []switchboard.TaskID{"all"}}
	for _, tt := range []struct {
		name string
		c    config.Config
		want bool
	}{
		{"neither keys nor persons", config.Config{}, true},
		{"the key of an agent", config.Config{Keys: []config.Key{{ID: "ci"}}}, false},
		{"a person without a task", config.Config{People: []config.PersonKey{{ID: "ann"}}, Claims: []config.PersonClaim{{Issuer: "idp"}}}, true},
		{"a person's key with a task", config.Config{People: []config.PersonKey{{ID: "ann"}, {ID: "ben", Calls: calls}}}, false},
		{"a claim with a task", config.Config{Claims: []config.PersonClaim{{Issuer: "idp", Calls: calls}}}, false},
	} {
		if got := hasOneUser(&tt.c); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}
