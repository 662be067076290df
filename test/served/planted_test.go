package served_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// plantedArguments are arguments with a credential, in the place of %s.
var plantedArguments = []string{
	`{"password":"%s"}`, `{"api_key":"%s"}`, `{"client_secret":"%s"}`, `{"access_token":"%s"}`, `{"refreshToken":"%s"}`,
	`{"authorization":"Bearer %s"}`, `{"headers":{"Authorization":"Basic %s"}}`, `{"headers":[{"cookie":"%s"}]}`, `{"deep":[[{"secret":["%s"]}]]}`,
	`{"text":"Authorization: Bearer %s"}`, `{"url":"https://ann:%s@x.org/a"}`, `{"dsn":"postgres://u:%s@db.x.org/x"}`,
	`{"text":"api_key=%s"}`, `{"text":"export API_TOKEN=%s\n"}`, `{"body":"{\"password\":\"%s\"}"}`, `{"body":"{\"a\":\"{\\\"api_key\\\":\\\"%s\\\"}\"}"}`,
	`{"text":"-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----"}`, `{"env":{"DB_PASSWORD":"%s"}}`, `{"password":"%s","again":"it is %s, or not"}`, `{"a":{"token":"%s"},"b":["%s"]}`,
}

// AP-06: forty credentials in arguments are masked where a person reads them, alike by the API, the command and the page. They are in nothing else that
// Switchboard writes or sends about the requests.
func TestAP06FortyPlantedSecretsAreMaskedAndNowhereElse(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	o, w := newOncall(t), serveDeciders(t, "1s")
	before := w.Reloads(rig.Reloaded)
	rig.WriteFile(t, filepath.Join(w.dir, "whsec"), noticeSecret)
	main := filepath.Join(w.dir, "switchboard.yaml")
	rig.ReplaceFile(t, main, rig.ReadFile(t, main)+"notify: {oncall: {url: \""+o.URL+"\", secret: \"${file:whsec}\"}}\n")
	w.AwaitReload(t, before, rig.Reloaded)
	luck := rand.New(rand.NewPCG(law.Seed(t), 0))
	type plant struct{ form, secret, id string }
	const letters = "bcdfghjkqvwzBCDFGHJKQVWZ23456789" // they form none of the words that the rules of gitleaks take for no secret, such as md5
	plants := make([]plant, 40)
	for i := range plants {
		secret := make([]byte, 40)
		for j := range secret {
			secret[j] = letters[luck.IntN(len(letters))]
		}
		plants[i] = plant{form: plantedArguments[i%len(plantedArguments)], secret: string(secret)}
	}
	var asking sync.WaitGroup
	for lane := range 10 { // of one principal, at most 20 calls wait
		s := w.as(t, "agent")
		asking.Go(func() {
			for i := lane; i < len(plants); i += 10 {
				p := &plants[i]
				body, extra := s.Request("tools/call", `{"name":"mail","arguments":`+strings.ReplaceAll(p.form, "%s", p.secret)+`}`)
				m, _, err := s.Exchange(body, extra)
				if found := requestID.FindStringSubmatch(string(m.Raw)); err != nil || found == nil {
					t.Errorf("%s: %v %.300s", p.form, err, m.Raw)
				} else {
					p.id = found[1]
				}
			}
		})
	}
	asking.Wait()
	if t.Failed() {
		return
	}
	var seen strings.Builder // all that is not meant for the person who decides
	unbroken := regexp.MustCompile(`\n *\| `)
	lea := openAdmin(t, w.Gateway, w.keys["lea"])
	for i, p := range plants {
		a := w.AskAdmin(t, w.keys["lea"], http.MethodGet, "/v1/approvals/"+p.id, "")
		var v struct {
			Text      string
			Arguments struct{ Masked []string }
		}
		if err := json.Unmarshal([]byte(a.Body), &v); err != nil || a.Status != http.StatusOK {
			t.Fatalf("%d %.500s", a.Status, a.Body)
		}
		if !strings.Contains(v.Text, `\masked{`) || len(v.Arguments.Masked) == 0 {
			t.Errorf("%s is not masked:\n%s", p.form, v.Text)
		}
		shown := []string{a.Body}
		if i%10 == 0 {
			out, errs, _ := rig.CommandAs(t, t.TempDir(), w.keys["lea"], "approvals", "show", p.id, "--url", w.AdminURL())
			if strings.TrimSpace(out) != strings.TrimSpace(v.Text) {
				t.Errorf("the command shows\n%s%s\nand the API\n%s", out, errs, v.Text)
			}
			_, page := lea.get(w.AdminURL() + "/approvals/" + p.id)
			shown = append(shown, out, page)
		}
		for _, text := range append(shown, v.Text) {
			if strings.Contains(unbroken.ReplaceAllString(text, ""), p.secret[:16]) {
				t.Errorf("%s is shown with its credential:\n%s", p.form, text)
			}
		}
		seen.WriteString(w.AskAdmin(t, w.keys["viewer"], http.MethodGet, "/v1/approvals/"+p.id, "").Body)
	}
	for _, id := range []string{plants[0].id, plants[1].id} {
		if a := w.say(t, "lea", id, "refuse", ""); a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	out, errs, code := rig.CommandAs(t, w.dir, w.keys["lea"], "approvals", "list", "--state", "any", "--json", "--url", w.AdminURL())
	if code != 0 || strings.Count(out, `"state":"pending"`) != len(plants)-2 {
		t.Errorf("the list: exit %d %s%s", code, out, errs)
	}
	export, _, _ := rig.Command(t, w.dir, "receipts", "export")
	if strings.Count(export, `"kind":"ask"`) != len(plants) {
		t.Errorf("the export has not all receipts:\n%.2000s", export)
	}
	for _, text := range append(o.await(t, len(plants)+2), out, export, w.Logged(),
		w.AskAdmin(t, w.keys["operator"], http.MethodGet, "/metrics", "").Body,
		w.AskAdmin(t, w.keys["operator"], http.MethodGet, "/v1/status", "").Body,
		w.AskAdmin(t, w.keys["viewer"], http.MethodGet, "/v1/receipts?limit=500", "").Body) {
		seen.WriteString(text)
	}
	for _, text := range archived(t, w.dir) { // the whole store, also what it has sealed
		seen.WriteString(text)
	}
	for _, p := range plants {
		if strings.Contains(seen.String(), p.secret[:16]) {
			t.Errorf("the credential of %s is in a list, a notice, the log, a receipt, a metric or the store", p.form)
		}
	}
	if len(seen.String()) < 100_000 {
		t.Errorf("only %d bytes were searched", len(seen.String()))
	}
}
