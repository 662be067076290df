package approval

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// maxForm limits the message of a form, in bytes. A person does not read longer ones.
const maxForm = 4 << 10

// A clientAnswer is the answer of the call's client to our question.
type clientAnswer struct {
	goesOn   bool    // the person has opened the page, or has decided
	decision *Saying // nil: the answer decides nothing
}

// mayAskByForm reports whether a form at the agent's client may decide the request.
func mayAskByForm(s switchboard.ApprovalSettings, r *Request) bool {
	return s.AskClient && s.Self && len(r.Terms.Who) == 0 && r.Terms.Needed() == 1
}

// askClient asks the client of the call, if it can show its person the request: by a form, where that may decide, or else the address of the request's
// page. The channel gets one answer. It is nil if the client is not asked. end stops the asking.
func (k *Keeper) askClient(ctx context.Context, c *switchboard.Call, r *Request, made bool) (answer <-chan clientAnswer, end func()) {
	if c.Client.Ask == nil {
		return nil, func() {}
	}
	form, byURL := elicits(c.Client.Capabilities)
	var params []byte
	if form && mayAskByForm(k.o.Settings(c.Principal.Tenant), r) {
		params = k.formFor(c, r)
	}
	decides := params != nil
	if address := k.address(r); !decides && byURL && made && strings.HasPrefix(address, "https://") {
		params = pageFor(c, r, address)
	}
	if params == nil {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	got := make(chan clientAnswer, 1)
	go func() {
		raw, err := c.Client.Ask(ctx, wire.MethodElicit, params)
		if err != nil {
			got <- clientAnswer{}
			return
		}
		got <- readAnswer(raw, decides)
	}()
	return got, cancel
}

// elicits reports which kinds of elicitation a client declares. One that names no kind shows forms.
func elicits(capabilities []byte) (form, byURL bool) {
	has, ok := wire.Field(capabilities, "elicitation")
	if !ok {
		return false, false
	}
	_, form = wire.Field(has, "form")
	_, byURL = wire.Field(has, "url")
	return form || !byURL, byURL
}

// readAnswer reads a result of elicitation/create. Only a form that was filled in decides: some agents accept empty forms by themselves.
func readAnswer(raw []byte, decides bool) clientAnswer {
	action, _ := wire.Field(raw, "action")
	if said, _ := wire.String(action); said != "accept" {
		return clientAnswer{}
	}
	if !decides {
		return clientAnswer{goesOn: true}
	}
	content, _ := wire.Field(raw, "content")
	given, _ := wire.Field(content, "decision")
	note, _ := wire.Field(content, "note")
	decision, _ := wire.String(given)
	text, _ := wire.String(note)
	if len(text) > MaxNote {
		text = strings.ToValidUTF8(text[:MaxNote], "")
	}
	switch decision {
	case "approve", "refuse":
		return clientAnswer{goesOn: true, decision: &Saying{Yes: decision == "approve", Note: text}}
	}
	return clientAnswer{}
}

// pageFor returns the params of an elicitation by URL.
func pageFor(c *switchboard.Call, r *Request, address string) []byte {
	question := map[string]string{
		"mode": "url", "url": address,
		"message": fmt.Sprintf("%s asks to call %s. Open this page, sign in, and approve or refuse it; the call goes on by itself.", r.Asker.Principal, c.Candidate()),
	}
	if !c.Client.TakesQuestions { // only the legacy era has it
		question["elicitationId"] = rand.Text()
	}
	params, err := json.Marshal(question)
	if err != nil {
		return nil
	}
	return params
}

// formFor returns the params of an elicitation by form; nil if the arguments are too long for one.
func (k *Keeper) formFor(c *switchboard.Call, r *Request) []byte {
	arguments, ok := k.o.Describe(c)
	message := fmt.Sprintf("%s asks to call %s once, with exactly these arguments:\n\n%s\n\nRequest %s, until %s.", r.Asker.Principal, c.Candidate(), arguments, r.ID(), r.Until.Format("15:04 MST"))
	if !ok || len(message) > maxForm {
		return nil
	}
	type field map[string]any
	params, err := json.Marshal(field{
		"message": message,
		"requestedSchema": field{
			"type": "object",
			"properties": field{
				"decision": field{"type": "string", "enum": []string{"approve", "refuse"}, "title": "Decision", "description": "approve: the call is made once. refuse: it is not made."},
				"note":     field{"type": "string", "title": "Note", "description": "What the agent is told. May be left out."},
			},
			"required": []string{"decision"},
		},
	})
	if err != nil {
		return nil
	}
	return params
}

// decideByClient records what the person at the client has said. Another decision may have been first.
func (k *Keeper) decideByClient(ctx context.Context, r *Request, s Saying) {
	tenant := r.Asker.Tenant
	by := byForm
	step := Step{Act: ActRefuse, Vote: Vote{By: by.ID, Auth: by.Auth, Note: s.Note}}
	if s.Yes {
		step.Act = ActApprove
	}
	_, err := k.step(ctx, tenant, r.ID(), true, step, func(r *Request) error {
		if !mayAskByForm(k.o.Settings(tenant), r) {
			return gone("a form at the client does not decide")
		}
		if !s.Yes || k.o.Veto == nil {
			return nil
		}
		kept, err := k.Kept(ctx, r)
		if err != nil {
			return err
		}
		return k.o.Veto(ctx, &by, r, nil, kept.Params)
	})
	if err != nil {
		k.o.Log.Info("what a client's form said about a request does not count", "request", r.ID(), "tenant", string(tenant), "error", err)
	}
}
