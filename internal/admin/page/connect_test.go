package page_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/credential"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A consentBook has the attempts that were ended. The ticket T has the state sT and the attempt aT.
type consentBook struct{ ended []string }

func (*consentBook) ReadTicket(_ context.Context, ticket string) (*credential.ConnectRequest, error) {
	name := "acme/ann"
	if person, ok := strings.CutPrefix(ticket, "of-"); ok {
		name = "acme/" + person + "@page"
	}
	return &credential.ConnectRequest{Tenant: "acme", Name: name, Server: "tracker"}, nil
}

func (*consentBook) BeginTicket(_ context.Context, ticket, _ string, _ *switchboard.Officer) (address, attempt string, err error) {
	return "https://id.example.com/authorize?state=s" + ticket, "a" + ticket, nil
}

func (b *consentBook) EndTicket(_ context.Context, attempt string, query url.Values) (*credential.ConnectRequest, error) {
	b.ended = append(b.ended, attempt+" "+query.Get("state"))
	if attempt == "" {
		return nil, switchboard.Refuse(switchboard.CodeNotAuthenticated, "it is of no use")
	}
	return &credential.ConnectRequest{Tenant: "acme", Server: "tracker"}, nil
}

// A cookieJar keeps cookies as a browser does: in the order in which they were set.
type cookieJar []*http.Cookie

func (j *cookieJar) keep(cookies []*http.Cookie) {
	for _, c := range cookies {
		*j = slices.DeleteFunc(*j, func(old *http.Cookie) bool { return old.Name == c.Name })
		if c.MaxAge >= 0 {
			*j = append(*j, c)
		}
	}
}

func (j *cookieJar) header() string {
	var all []string
	for _, c := range *j {
		all = append(all, c.Name+"="+c.Value)
	}
	return strings.Join(all, "; ")
}

var formTokenOf = regexp.MustCompile(`name="token" value="([^"]+)"`)

func TestSeveralLinksThatAreOpenAtOnceInOneBrowserAreEachEndedByTheirOwnAnswer(t *testing.T) {
	for host, origin := range map[string]string{"sb.example.com": "https://sb.example.com", "127.0.0.1:7422": "http://127.0.0.1:7422"} {
		d := newDesk(t, "https://sb.example.com")
		jar := &cookieJar{{Name: "switchboard-connect-0123456789abcdef-7423", Value: "of another port"}}
		get := func(path string) (int, string) {
			w := d.ask("GET", path, host, "", "Cookie", jar.header())
			jar.keep(w.Result().Cookies())
			return w.Code, w.Body.String()
		}
		post := func(path string, values url.Values) {
			t.Helper()
			w := d.ask("POST", path, host, values.Encode(), "Origin", origin, "Content-Type", form, "Cookie", jar.header())
			jar.keep(w.Result().Cookies())
			if w.Code != http.StatusOK {
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
		}
		post("/sign-in", url.Values{"key": {d.key}})
		const links = 12
		for i := range links {
			path := fmt.Sprintf("/connect/%d", i)
			_, page := get(path)
			token := formTokenOf.FindStringSubmatch(page)
			if token == nil {
				t.Fatalf("%s shows %s", path, page)
			}
			post(path, url.Values{"token": {token[1]}})
		}
		if n := strings.Count(jar.header(), "switchboard-connect-"); n != 1+8 {
			t.Errorf("%s: the browser has %d cookies: %s", host, n, jar.header())
		}
		var ended []string
		for _, tt := range []struct {
			query, ended string
			ok           bool
		}{
			{"state=s9&code=x", "a9 s9", true}, // not the last one that was opened
			{"state=s9&code=x", " s9", false},
			{"state=s11&state=s10", " s11", false},
			{"state=", " ", false},
			{"state=s77", " s77", false},
			{"state=s0", " s0", false}, // too many were opened after it
			{"state=s11", "a11 s11", true},
			{"state=s4", "a4 s4", true},
			{"state=s10", "a10 s10", true},
		} {
			status, _ := get("/connect/callback?" + tt.query)
			if (status == http.StatusOK) != tt.ok {
				t.Errorf("%s: %s is answered with %d", host, tt.query, status)
			}
			ended = append(ended, tt.ended)
		}
		if !slices.Equal(d.consents.ended, ended) {
			t.Errorf("%s: ended %q, want %q", host, d.consents.ended, ended)
		}
	}
}

// An operator connects servers for keys, which are no persons. But the account of a person who calls tools on the page is that person's.
func TestAPersonConnectsNoAccountButTheirOwn(t *testing.T) {
	d := newDesk(t, "https://sb.example.com")
	const host = "127.0.0.1:7422"
	jar := &cookieJar{}
	w := d.ask("POST", "/sign-in", host, url.Values{"key": {d.key}}.Encode(), "Origin", "http://"+host, "Content-Type", form)
	jar.keep(w.Result().Cookies())
	for ticket, want := range map[string]int{"1": http.StatusOK, "of-ann": http.StatusOK, "of-vic": http.StatusForbidden, "of-idp/00u1": http.StatusForbidden} {
		if w := d.ask("GET", "/connect/"+ticket, host, "", "Cookie", jar.header()); w.Code != want {
			t.Errorf("the link %s is answered with %d, want %d: %s", ticket, w.Code, want, w.Body)
		}
		w := d.ask("POST", "/connect/"+ticket, host, url.Values{"token": {"x"}}.Encode(), "Origin", "http://"+host, "Content-Type", form, "Cookie", jar.header())
		if strings.Contains(w.Header().Get("Location")+w.Body.String(), "id.example.com") {
			t.Errorf("without a token of its form, the link %s leads to the provider", ticket)
		}
	}
}

func TestTheClientDocumentIsThereForEverybodyWhereTheOperatorSaysSo(t *testing.T) {
	d := newDesk(t, "https://sb.example.com")
	if w := d.ask("GET", "/connect/client.json", "sb.example.com", ""); w.Code != http.StatusNotFound {
		t.Errorf("without it: %d %s", w.Code, w.Body)
	}
	d.document = "https://sb.example.com/connect/client.json"
	w := d.ask("GET", "/connect/client.json", "sb.example.com", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors")
	const want = `{"client_id":"https://sb.example.com/connect/client.json","client_name":"Switchboard","redirect_uris":["https://sb.example.com/connect/callback"],` +
		`"grant_types":["authorization_code","refresh_token"],"response_types":["code"],"token_endpoint_auth_method":"none","application_type":"web"}`
	if got := w.Body.String(); w.Code != http.StatusOK || got != want || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %s, want %s", w.Code, got, want)
	}
}
