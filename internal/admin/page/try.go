package page

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/admin/trial"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/shown"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const tryPath = "/try"

// tryView is the view of the tools that a person can call. triedView is the view of the outcome of one call.
var (
	tryView = pageView{
		path: tryPath, title: "Try", needs: switchboard.OfficeViewer, template: "try.html", live: neverReads,
		api: offerAddress, load: loadTry,
		forms: map[string]viewForm{"write": writeTry, "call": askTry, "make": makeTry},
	}
	triedView = pageView{
		path: tryPath + "/{call}", title: "A call", inside: tryPath, needs: switchboard.OfficeViewer, command: "switchboard try --result {call}", template: "tried.html", live: onFigures,
		api:  func(q *viewQuery) string { return linkTo(q.fill("/v1/try/{call}"), q.pick("tenant")) },
		load: loadTried, refused: awaitTried,
		forms: map[string]viewForm{"resume": resumeTry},
	}
)

// offerAddress returns the address of the tools that the person can call.
func offerAddress(q *viewQuery) string { return linkTo("/v1/try", q.pick("tenant", "task", "tool")) }

// A tryPage is the data of the view of the tools that a person can call.
type tryPage struct {
	trial.TryOffer
	Chosen *tryForm // nil if no tool is chosen
	Gone   bool     // the task has no tool of the chosen name
}

// A tryForm is the form of a tool.
type tryForm struct {
	trial.TryTool
	Fields []tryField
	Beyond bool   // the form cannot express all arguments
	Key    string // of the calls of this form
	Seen   string // the digest of what the question says about the call
}

// A tryDraft is what a form was answered with: the arguments, and whether the page asks before it makes the call.
type tryDraft struct {
	JSON    string
	Ask     bool
	Changed bool // what the page asked about has changed since
}

func loadTry(q *viewQuery, answer []byte) (any, error) {
	v := &tryPage{}
	if err := json.Unmarshal(answer, &v.TryOffer); err != nil {
		return nil, err
	}
	name := q.state.Get("tool")
	q.command = "switchboard try"
	for i := range v.Tools {
		if t := &v.Tools[i]; t.Name == name {
			v.Chosen = newTryForm(&v.TryOffer, t)
			q.command += " " + shellWord(t.Name) + " '{}'"
		}
	}
	v.Gone = name != "" && v.Chosen == nil && v.Refused == nil
	if v.Task != "" {
		q.command += " --task " + shellWord(string(v.Task))
	}
	return v, nil
}

func newTryForm(offer *trial.TryOffer, t *trial.TryTool) *tryForm {
	f := &tryForm{TryTool: *t, Key: rand.Text(), Seen: digestQuestion(offer, t)}
	f.Fields, f.Beyond = formOf(t.Schema)
	return f
}

// digestQuestion returns a digest of the question before a call: the caller, the tenant, the task, and the text about the tool.
func digestQuestion(offer *trial.TryOffer, t *trial.TryTool) string {
	text, _ := json.Marshal([]any{offer.Tenant, offer.Principal, offer.Task, t}) // it was JSON before
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// A chosenTool is the tool of a form, out of its offer.
type chosenTool struct {
	*trial.TryTool
	offer *trial.TryOffer
}

// findChosen returns the tool that the address names, for the tenant and the task that the form was shown with. From then on the address names them too:
// it may have left them out, and the first task can be another one by now.
func findChosen(q *viewQuery, fields url.Values) (chosenTool, error) {
	for _, name := range []string{"tenant", "task"} {
		if shown := fields.Get(name); shown != "" {
			q.state.Set(name, shown)
		}
	}
	offer := &trial.TryOffer{}
	if err := q.get(offerAddress(q), offer); err != nil {
		return chosenTool{}, err
	}
	for i := range offer.Tools {
		if offer.Tools[i].Name == q.state.Get("tool") {
			return chosenTool{&offer.Tools[i], offer}, nil
		}
	}
	return chosenTool{}, refuseForm("this task has no such tool any more, so nothing was called")
}

// refuseForm refuses what a form has sent.
func refuseForm(why string) error {
	return &refusalError{access.Problem{Status: http.StatusBadRequest, Code: switchboard.CodeBadArguments, Detail: why, Hint: "What you typed is kept."}}
}

// argumentsOf returns the arguments that a form has sent: as JSON, or in the fields of the tool's form.
func argumentsOf(t *trial.TryTool, fields url.Values) (string, error) {
	if !fields.Has("json") {
		known, _ := formOf(t.Schema)
		return writeFields(known, fields)
	}
	text := strings.TrimSpace(strings.ReplaceAll(fields.Get("json"), "\r\n", "\n"))
	if text == "" {
		text = "{}"
	}
	if !json.Valid([]byte(text)) || text[0] != '{' {
		return "", refuseForm("the arguments are no JSON object, so nothing was called")
	}
	return text, nil
}

// writeTry writes the fields of a form as JSON, and calls nothing.
func writeTry(q *viewQuery, fields url.Values) (formDone, error) {
	_, text, err := chosenCall(q, fields)
	return formDone{Result: &tryDraft{JSON: text}}, err
}

// chosenCall returns the tool and the arguments of a form.
func chosenCall(q *viewQuery, fields url.Values) (t chosenTool, text string, err error) {
	if t, err = findChosen(q, fields); err != nil {
		return t, "", err
	}
	text, err = argumentsOf(t.TryTool, fields)
	return t, text, err
}

// askTry makes the call if it only reads. Otherwise it asks first.
func askTry(q *viewQuery, fields url.Values) (formDone, error) {
	t, text, err := chosenCall(q, fields)
	if err != nil {
		return formDone{}, err
	}
	if t.Changes {
		return formDone{Result: &tryDraft{JSON: text, Ask: true}}, nil
	}
	return sendTry(q, t.Name, text, fields.Get("key"))
}

// makeTry makes a call that the person has confirmed. If anything that the question said has changed since, it asks again.
func makeTry(q *viewQuery, fields url.Values) (formDone, error) {
	t, text, err := chosenCall(q, fields)
	if err != nil {
		return formDone{}, err
	}
	if fields.Get("seen") != digestQuestion(t.offer, t.TryTool) {
		return formDone{Result: &tryDraft{JSON: text, Ask: true, Changed: true}}, nil
	}
	return sendTry(q, t.Name, text, fields.Get("key"))
}

// resumeTry makes the call of a request for approval, as it was, with the tool that agents use for that.
func resumeTry(q *viewQuery, fields url.Values) (formDone, error) {
	arguments, _ := json.Marshal(map[string]string{"request": fields.Get("request")}) // a text can be encoded
	q.state.Set("task", fields.Get("task"))
	q.state.Del("tool")
	return sendTry(q, approval.ResumeTool, string(arguments), fields.Get("key"))
}

// tryPatience is how long the page waits for a call before it shows that the call is being made.
const tryPatience = 2 * time.Second

// sendTry makes the call, and leads to its outcome. The form and the call have the same key: a form that is sent twice makes one call, and with other
// arguments it makes another one. The call goes on if it takes longer, or if the browser leaves. A stop waits for it as
// for all calls in flight: when their time is over, the gateway cuts it.
func sendTry(q *viewQuery, tool, arguments, key string) (formDone, error) {
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	if err := e.Encode(trial.TryCall{Task: switchboard.TaskID(q.state.Get("task")), Tool: tool, Arguments: json.RawMessage(arguments)}); err != nil {
		return formDone{}, err
	}
	if len(key) != len(rand.Text()) {
		return formDone{}, refuseForm("this form has no key, so nothing was called; load the page again")
	}
	sum := sha256.Sum256(body.Bytes())
	key += "-" + hex.EncodeToString(sum[:8])
	ctx, cancel := context.WithCancel(context.WithoutCancel(q.r.Context()))
	stop := context.AfterFunc(q.page.o.Stopping, cancel)
	later := *q
	later.r = q.r.WithContext(ctx)
	answered := make(chan error, 1)
	q.page.o.Work(func() {
		defer cancel()
		defer stop()
		defer func() { // the server of the page is not around this goroutine
			if reason := recover(); reason != nil {
				q.page.o.Log.Error("a call from the page has failed", "reason", reason)
				answered <- &refusalError{access.Problem{Status: http.StatusInternalServerError, Detail: "the call has failed; its receipt says what is known of it"}}
			}
		}()
		answered <- later.call(http.MethodPost, linkTo("/v1/try", q.pick("tenant")), body.Bytes(), http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {key}}).refusal()
	})
	timer := time.NewTimer(tryPatience)
	defer timer.Stop()
	select {
	case err := <-answered:
		if err != nil && !isInFlight(err) {
			return formDone{}, err
		}
	case <-timer.C:
	}
	return formDone{Next: linkTo(tryPath+"/"+url.PathEscape(key), q.pick("tenant", "task", "tool"))}, nil
}

// isInFlight reports whether a refusal says that the call is being made.
func isInFlight(err error) bool {
	refused, _ := errors.AsType[*refusalError](err)
	return refused != nil && refused.Status == http.StatusConflict && refused.Code == switchboard.CodeKeyTaken && refused.Retry == switchboard.RetryLater
}

// A triedPage is the data of the view of the outcome of one call.
type triedPage struct {
	trial.TryOutcome
	Running bool     // it has got nothing yet
	Texts   []string // of the result, with every character visible
	More    int      // texts that are left out
	JSON    string   // the whole result

	Approval *approvals.ApprovalView // of the request that the call waits for, nil if there is none
	Resume   bool                    // a person has said yes, and the call can be made
	Key      string                  // of the call that resumes it
}

// maxTexts limits the texts of a result that are shown one by one.
const maxTexts = 20

func loadTried(q *viewQuery, answer []byte) (any, error) {
	v := &triedPage{Key: rand.Text()}
	if err := json.Unmarshal(answer, &v.TryOutcome); err != nil {
		return nil, err
	}
	var result struct {
		Content []struct{ Type, Text string }
	}
	if json.Unmarshal(v.Result, &result) == nil {
		for _, c := range result.Content {
			switch {
			case c.Type != "text":
			case len(v.Texts) == maxTexts:
				v.More++
			default:
				v.Texts = append(v.Texts, visibleText(c.Text))
			}
		}
	}
	if v.Result != nil {
		v.JSON = definitionText(v.Result)
	} else {
		v.JSON = visibleText(v.Beginning)
	}
	if v.Request != "" {
		a := &approvals.ApprovalView{}
		if q.get("/v1/approvals/"+url.PathEscape(v.Request), a) == nil {
			v.Approval, v.Resume = a, a.State == approval.Approved
		}
	}
	return v, nil
}

// awaitTried shows a call that has got nothing yet.
func awaitTried(_ *viewQuery, why error) (any, int, error) {
	if !isInFlight(why) {
		return nil, 0, why
	}
	return &triedPage{Running: true}, http.StatusOK, nil
}

// visibleText returns a text in its lines, with every other character that is not visible spelt out.
func visibleText(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = shown.Line(lines[i])
	}
	return strings.Join(lines, "\n")
}
