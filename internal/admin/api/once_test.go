package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/idempotency"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A givenAnswer is the answer that every request with a key has got before.
type givenAnswer string

func (g givenAnswer) Answer(context.Context, idempotency.Request, func() ([]byte, bool)) (answer []byte, repeated bool, err error) {
	return []byte(g), true, nil
}

func (g givenAnswer) Kept(context.Context, string, string) ([]byte, error) { return []byte(g), nil }

func TestARepeatGivesNoAnswerAboutATenantThatTheOfficerHasLost(t *testing.T) {
	const outcome = `{"status":200,"header":{}}` + "\n" + `{"tenant":"acme","tool":"work","result":"theirs"}`
	viewerOf := func(tenants ...switchboard.TenantID) switchboard.Officer {
		o := switchboard.Officer{ID: "vic", Auth: switchboard.AuthPersonKey, Offices: map[switchboard.TenantID][]switchboard.Office{}}
		for _, t := range tenants {
			o.Offices[t] = []switchboard.Office{switchboard.OfficeViewer}
		}
		return o
	}
	for _, tt := range []struct {
		name    string
		needs   switchboard.Office
		officer switchboard.Officer
		answer  string
		want    int
	}{
		{"still of the tenant", switchboard.OfficeViewer, viewerOf("acme"), outcome, 200},
		{"of another tenant now", switchboard.OfficeViewer, viewerOf("umbrella"), outcome, 404},
		{"without the office now", switchboard.OfficeAdmin, viewerOf("acme"), outcome, 403},
		{"an operator", switchboard.OfficeViewer, switchboard.Officer{ID: "ops", Operator: true}, outcome, 200},
		{"of a tenant that was removed", switchboard.OfficeViewer, switchboard.Officer{ID: "ops", Operator: true}, strings.Replace(outcome, "acme", "gone", 1), 404},
		{"an answer about no tenant", switchboard.OfficeViewer, viewerOf("umbrella"), `{"status":200,"header":{}}` + "\n" + `{"verified":3}`, 200},
	} {
		a := newDoor("")
		a.o.Keys, a.o.DigestRequest = givenAnswer(tt.answer), func(string, []byte) string { return "" }
		a.o.Reader = admin.NewReader(admin.ReaderOptions{Configuration: func() admin.Configuration {
			return admin.Configuration{State: &bind.State{Config: &config.Config{}, Tenants: map[switchboard.TenantID]*bind.Tenant{"acme": {}, "umbrella": {}}}}
		}})
		r := httptest.NewRequest(http.MethodPost, "/v1/try", strings.NewReader(`{"tool":"work"}`))
		r.Header.Set("Idempotency-Key", "k")
		r = r.WithContext(context.WithValue(r.Context(), officerKey{}, &tt.officer))
		w := httptest.NewRecorder()
		keyedRequests{a}.answerOnce(humago.NewContext(&huma.Operation{Metadata: map[string]any{needsKey: tt.needs, changesKey: true}}, r, w), func(huma.Context) { t.Errorf("%s: the call is made again", tt.name) })
		if w.Code != tt.want || strings.Contains(w.Body.String(), "theirs") != (tt.want == http.StatusOK && tt.answer == outcome) {
			t.Errorf("%s: %d, want %d: %s", tt.name, w.Code, tt.want, w.Body)
		}
	}
}
