package api

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A stream ends when the last row of its key ends, not at the next look at the key.
func TestAStreamEndsWhenItsKeyExpires(t *testing.T) {
	for _, tt := range []struct {
		name string
		rows []time.Duration // when the rows of the key end; 0 means never
		ends time.Duration   // 0 means with the reader, after an hour
	}{
		{"one row", []time.Duration{20 * time.Second}, 20 * time.Second},
		{"between two looks", []time.Duration{31 * time.Second}, 31 * time.Second},
		{"before the first look", []time.Duration{time.Millisecond}, time.Millisecond},
		{"two rows", []time.Duration{time.Second, 21 * time.Second}, 21 * time.Second},
		{"one row without an end", []time.Duration{time.Second, 0}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				key, _ := identity.Mint(identity.PersonPrefix)
				var rows []identity.OfficerKey
				for _, end := range tt.rows {
					row := identity.OfficerKey{ID: "ops", Hash: sha256.Sum256([]byte(key)), Operator: true}
					if end > 0 {
						row.Expires = began.Add(end)
					}
					rows = append(rows, row)
				}
				a := newDoor("")
				a.o.Events = event.NewRecent("n1")
				a.o.Authenticate = identity.NewOfficers(rows, nil, nil).Authenticate
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events", nil)
				r.Header.Set("Authorization", "Bearer "+key)
				officer, err := a.o.Authenticate(r)
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan time.Duration, 1)
				go func() {
					a.streamEvents(r, httptest.NewRecorder(), asked{officer: &officer}, a.o.Events.End())
					ended <- time.Since(began)
				}()
				select {
				case at := <-ended:
					if tt.ends == 0 || at != tt.ends {
						t.Errorf("it ends after %v, want %v", at, tt.ends)
					}
				case <-time.After(time.Hour):
					if tt.ends != 0 {
						t.Errorf("it does not end, want %v", tt.ends)
					}
					leave()
					<-ended
				}
			})
		})
	}
}

func TestAnEventOfATenantConcernsNoOther(t *testing.T) {
	e := &event.Occurrence{Type: event.Approval, Tenant: "acme", Server: "mail", Subject: "k3fqx2mz7ab4cd5e-1"}
	for tenant, want := range map[switchboard.TenantID]bool{"acme": true, "umbrella": false, "": true} {
		if got := concerns(nil, asked{tenant: tenant}, e); got != want {
			t.Errorf("an officer who asks about %q: %v", tenant, got)
		}
	}
}
