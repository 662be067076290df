package rig

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/lockfile"
	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/shape"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// itemKinds are the kinds of pins of single items.
var itemKinds = map[switchboard.PinKind]switchboard.Kind{switchboard.PinTool: switchboard.Tools, switchboard.PinPrompt: switchboard.Prompts, switchboard.PinTemplate: switchboard.Templates}

// Admit writes into the admitted.lock of a folder that a person has let definitions in, also those with characters that deceive: without these characters, which are
// removed, and in the form that every client can read.
func Admit(t *testing.T, dir string, server switchboard.ServerID, kind switchboard.PinKind, definitions ...string) {
	t.Helper()
	file := filepath.Join(dir, lockfile.Name)
	var pins []switchboard.AdmittedPin
	for _, d := range definitions {
		clean, _ := scan.CleanJSON([]byte(d))
		if item, ok := itemKinds[kind]; ok {
			clean, _ = shape.Repair(item, clean)
		}
		digest, err := admission.DigestOf(clean)
		if err != nil {
			t.Fatal(err)
		}
		var named struct{ Name, URITemplate string }
		if err := json.Unmarshal([]byte(d), &named); err != nil {
			t.Fatal(err)
		}
		name := named.Name
		if kind == switchboard.PinTemplate {
			name = named.URITemplate
		}
		pins = append(pins, switchboard.AdmittedPin{
			PinID: switchboard.PinID{Server: server, Kind: kind, Name: name}, Digest: digest, State: switchboard.LifeActive, By: "tester", At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		})
	}
	var present []byte // nil: there is no such file
	if was := ReadFile(t, file); was != "" {
		present = []byte(was)
	}
	text, err := lockfile.SetAdmitted(present, pins...)
	if err != nil {
		t.Fatal(err)
	}
	WriteFile(t, file, string(text))
}

// Accept waits until a server offers another definition than the admitted one, or a new one, and accepts it as the operator.
func (g *Gateway) Accept(t *testing.T, server, kind, name string) {
	t.Helper()
	query := url.Values{"server": {server}, "kind": {kind}, "name": {name}}.Encode()
	Eventually(t, fmt.Sprintf("the %s %s of %s is accepted", kind, name, server), func() string {
		a := g.AskAdmin(t, "", http.MethodGet, "/v1/pins/one?"+query, "")
		var d struct{ State, Digest, Offered string }
		if err := json.Unmarshal([]byte(a.Body), &d); err != nil || a.Status != http.StatusOK {
			return a.Body
		}
		switch {
		case d.Offered != "":
			d.Digest = d.Offered
		case d.State == string(switchboard.LifeActive):
			return "it is offered as it was let in: " + a.Body
		}
		a = g.AskAdmin(t, "", http.MethodPost, "/v1/pins/accept?"+query, fmt.Sprintf(`{"digest":%q}`, d.Digest))
		return ReasonUnless(a.Status == http.StatusOK, a.Body)
	})
}
