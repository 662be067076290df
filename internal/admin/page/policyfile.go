package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/shown"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/whatif"
)

// policyFileView shows one policy file of a tenant in a form: a person writes it, tries it, and saves it. Its address holds the tenant and the path of the
// file in the tenant's folder of policies. What is typed is in the form alone: it is sent with each button, and shown again.
var policyFileView = pageView{
	path: "/policies/file", title: "A policy file", inside: policiesPath, needs: switchboard.OfficeAuthor, template: "policyfile.html", live: neverReads,
	settle: nameTenant,
	api: func(q *viewQuery) string {
		return linkTo("/v1/configuration/file", nil, "path", pathOfPolicy(q, q.state.Get("path")))
	},
	load:    loadPolicyFile,
	refused: refusePolicyFile,
	forms: map[string]viewForm{
		"check": withTexts(checkPolicy), "test": withTexts(testPolicy), "try": withTexts(tryPolicy), "compare": withTexts(comparePolicy), "save": withTexts(savePolicy),
		"look": lookAtPolicy, "undo": undoPolicy,
	},
}

// pathOfPolicy returns the path of a policy file in the folder of the configuration.
func pathOfPolicy(q *viewQuery, path string) string {
	return "tenants/" + q.state.Get("tenant") + "/policies/" + path
}

// Bounds of the form with the texts of a policy and its tests, in characters. A longer text is refused, and stays in the form. Browsers cut a text that is longer than
// they may send, and say nothing; so they may send twice as much.
const (
	maxRulesText = 40_000
	maxTestsText = 20_000
	maxArguments = 16_000
)

// Bounds of the body of a form of a view, in bytes: this one is the largest. Browsers write a character with up to 9 bytes.
const (
	maxTextForm     = 9 * (2*maxRulesText + 2*maxTestsText + maxArguments + 10_000)
	maxUnsignedForm = 9 * (maxRulesText + maxTestsText + maxArguments + 10_000) // without a session: all that the form accepts
)

// maxTriedDecisions limits the recorded decisions that the view offers to try a policy on.
const maxTriedDecisions = 30

// A policyFileScene is the data of the view.
type policyFileScene struct {
	Now       time.Time
	File      editedPolicy
	Tests     *editedPolicy // nil for a file that has no tests of its own
	LongTests string        // the path of the tests, if they are too long for the form, and none were typed; then Tests is nil
	Decisions []admin.DecisionRow
	Saved     []change.Revision // that the address names
}

// IsLong reports whether the file is too long for the form.
func (s *policyFileScene) IsLong() bool { return utf8.RuneCountInString(s.File.Text) > maxRulesText }

// MaxRules is the bound of the rules.
func (*policyFileScene) MaxRules() int { return maxRulesText }

// MaxTests is the bound of the tests.
func (*policyFileScene) MaxTests() int { return maxTestsText }

// An editedPolicy is a file in the form.
type editedPolicy struct {
	Path string // in the folder of the configuration
	Text string // as it is, or a beginning of a new one
	ETag string // "" for a new one
	Last *change.Revision
}

// isNew reports whether there is no such file yet.
func (f *editedPolicy) isNew() bool { return f.ETag == "" }

// IsNew reports whether there is no such file yet.
func (s *policyFileScene) IsNew() bool { return s.File.isNew() }

// testsOf returns the path of the tests of a file of rules; "" if it has none of its own.
func testsOf(path string) string {
	name, isRego := strings.CutSuffix(path, ".rego")
	if !isRego || strings.HasSuffix(name, "_test") || name == "" {
		return ""
	}
	return name + "_test.rego"
}

func loadPolicyFile(q *viewQuery, answer []byte) (any, error) {
	var body struct{ Text string }
	if err := json.Unmarshal(answer, &body); err != nil {
		return nil, err
	}
	return newPolicyFileScene(q)
}

// refusePolicyFile shows the form of a new file, if there is no such file.
func refusePolicyFile(q *viewQuery, why error) (data any, status int, err error) {
	if problemOf(why).Status != http.StatusNotFound || !policyName.MatchString(q.state.Get("path")) || !mayEditPolicies(q, switchboard.TenantID(q.state.Get("tenant"))) {
		return nil, 0, why
	}
	data, err = newPolicyFileScene(q)
	return data, http.StatusOK, err
}

// policyName is the form of the path of a new file.
var policyName = regexp.MustCompile(`^([a-zA-Z0-9_-]+/)*[a-zA-Z0-9_-]+\.(rego|json|yaml)$`)

// newPolicyFileScene reads the file, its tests, who changed them, and the last decisions.
func newPolicyFileScene(q *viewQuery) (*policyFileScene, error) {
	s := &policyFileScene{Now: time.Now()}
	list, err := changesOfFiles(q)
	if err != nil {
		return nil, err
	}
	own := &admin.PolicyList{}
	if err := q.get(policyAddress(q, "/policies"), own); err != nil {
		return nil, err
	}
	read := func(f *editedPolicy, path, begin string) error {
		f.Path = pathOfPolicy(q, path)
		answer := q.call(http.MethodGet, linkTo("/v1/configuration/file", nil, "path", f.Path), nil, nil)
		if answer.status == http.StatusNotFound {
			f.Text = begin
		} else {
			if err := answer.refusal(); err != nil {
				return err
			}
			var body struct{ Text string }
			if err := json.Unmarshal(answer.body.Bytes(), &body); err != nil {
				return err
			}
			f.Text, f.ETag = body.Text, answer.header.Get("ETag")
		}
		if i := slices.IndexFunc(list, func(c change.Revision) bool { return c.Path == f.Path }); i >= 0 && list[i].AfterDigest == strings.Trim(f.ETag, `"`) {
			f.Last = &list[i]
		}
		return nil
	}
	path := q.state.Get("path")
	if err := read(&s.File, path, beginPolicy(path, own)); err != nil {
		return nil, err
	}
	if tests := testsOf(path); tests != "" {
		s.Tests = &editedPolicy{}
		if err := read(s.Tests, tests, beginTests); err != nil {
			return nil, err
		}
		if utf8.RuneCountInString(s.Tests.Text) > maxTestsText && !q.r.PostForm.Has("tests") { // typed tests stay in the form
			s.LongTests, s.Tests = s.Tests.Path, nil
		}
	}
	for _, f := range []*editedPolicy{&s.File, s.Tests} {
		if f != nil && f.Last != nil && slices.Contains(strings.Split(q.state.Get("saved"), " "), f.Last.ID) {
			s.Saved = append(s.Saved, *f.Last)
		}
	}
	var page admin.DecisionPage
	if _, err := problemIn(q.get(linkTo("/v1/decisions", nil, "tenant", q.state.Get("tenant"), "limit", strconv.Itoa(maxTriedDecisions)), &page)); err != nil {
		return nil, err // but if the store is away, a person still finds the texts
	}
	s.Decisions = slices.DeleteFunc(page.Decisions, func(d admin.DecisionRow) bool { return d.Fault != "" })
	return s, nil
}

// changesOfFiles returns the last changes of files that the officer sees, the newest first; none if they cannot be read.
func changesOfFiles(q *viewQuery) ([]change.Revision, error) {
	var list struct{ Changes []change.Revision }
	problem, err := problemIn(q.get("/v1/configuration/changes?limit=50", &list))
	if err != nil || problem != nil {
		return nil, err
	}
	return list.Changes, nil
}

// The texts that a new file begins with.
const (
	beginLayer = `package switchboard.tenant

# Every tool may be used, as far as this layer is concerned.
allowed_tools contains c.id if some c in input.candidate_tools
`
	beginVeto = `
deny[c.id] contains "say why" if {
	some c in input.candidate_tools
	c.id == "server/tool"
}
`
	beginTests = `package switchboard.tenant_test

import data.switchboard.tenant

test_it_is_denied if {
	tenant.deny["server/tool"] with input as {"candidate_tools": [{"id": "server/tool"}]}
}
`
)

// beginPolicy returns the text that a new file begins with. The first file of a layer must allow tools.
func beginPolicy(path string, own *admin.PolicyList) string {
	switch {
	case strings.HasSuffix(path, "_test.rego"):
		return beginTests
	case !strings.HasSuffix(path, ".rego"):
		return ""
	case slices.ContainsFunc(own.Files, func(f admin.PolicyFileRow) bool { return strings.HasSuffix(f.Path, ".rego") && !f.Test }):
		return "package switchboard.tenant\n" + beginVeto
	}
	return beginLayer + beginVeto
}

// typedPolicies are the texts of a form.
type typedPolicies struct {
	path, text  string
	tests       string // the path of the tests, "" if the form has none
	testsText   string
	etag, etag2 string // of the files that the texts were begun with
}

// withTexts returns a form that reads its texts first. It does nothing if a text is too long, or if the tests of a file were emptied: that does not say that the file
// is to go.
func withTexts(do func(q *viewQuery, t *typedPolicies, fields url.Values) (formDone, error)) viewForm {
	return func(q *viewQuery, fields url.Values) (formDone, error) {
		refuse := func(why, hint string) (formDone, error) {
			return formDone{}, &refusalError{access.Problem{Status: http.StatusUnprocessableEntity, Detail: why + ", so nothing was done", Hint: hint}}
		}
		for _, f := range []struct {
			name, what string
			most       int
		}{{"text", "text", maxRulesText}, {"tests", "text of the tests", maxTestsText}, {"arguments", "text of the arguments", maxArguments}} {
			if n := utf8.RuneCountInString(withLineFeeds(fields.Get(f.name))); n > f.most {
				return refuse(fmt.Sprintf("the %s has %d characters, and this form takes at most %d", f.what, n, f.most), `What you typed is kept. A longer file is saved in a terminal, with "switchboard config put".`)
			}
		}
		if fields.Has("tests") && fields.Get("tests_etag") != "" && strings.TrimSpace(fields.Get("tests")) == "" {
			return refuse("the tests are empty, and an empty text does not remove their file", "Write a test. To remove the file, use a terminal: switchboard config delete "+shellWord(pathOfPolicy(q, testsOf(q.state.Get("path")))))
		}
		t, err := readTyped(q, fields)
		if err != nil {
			return formDone{}, err
		}
		return do(q, t, fields)
	}
}

// readTyped reads the texts of a form, with the line ends of the files that they are to replace.
func readTyped(q *viewQuery, fields url.Values) (*typedPolicies, error) {
	t := &typedPolicies{path: q.state.Get("path"), etag: fields.Get("etag"), etag2: fields.Get("tests_etag")}
	var err error
	if t.text, err = withEndsOfFile(q, t.path, fields.Get("text")); err != nil {
		return nil, err
	}
	if text := withLineFeeds(fields.Get("tests")); strings.TrimSpace(text) != "" && (t.etag2 != "" || text != beginTests) {
		t.tests = testsOf(t.path)
		t.testsText, err = withEndsOfFile(q, t.tests, text)
	}
	return t, err
}

// withEndsOfFile returns a typed text with the line ends of the present file of the tenant's folder of policies.
func withEndsOfFile(q *viewQuery, path, typed string) (string, error) {
	var is struct{ Text string }
	err := q.get(linkTo("/v1/configuration/file", nil, "path", pathOfPolicy(q, path)), &is)
	if problem, _ := problemIn(err); problem != nil && problem.Status == http.StatusNotFound { // a new file has no line ends yet
		err = nil
	}
	return withLineEnds(typed, is.Text), err
}

// proposed returns the texts as the API takes them, with paths in the tenant's folder of policies.
func (t *typedPolicies) proposed() (files []map[string]string) {
	files = append(files, map[string]string{"path": t.path, "text": t.text})
	if t.tests != "" {
		files = append(files, map[string]string{"path": t.tests, "text": t.testsText})
	}
	return files
}

// A policyLook is what a button of the form has found.
type policyLook struct {
	Faults     []policyFault
	Check      *admin.PolicyCheck
	Trial      *change.Trial
	Run        *admin.PolicyTestRun
	Evaluation *author.Evaluation
	Own        *author.LayerValues // of the tenant, in Evaluation
	Stopped    string
	Comparison *whatif.Comparison

	Diff   string            // of the typed text, from the file that somebody else has changed
	Others []change.Revision // who has changed it

	Saved   []string // the changes that were saved before another one was refused
	renewed []string // the paths of the files whose entity tags are the present ones again: they were saved, or the view shows the difference
}

// A policyFault is a fault in the typed text, with the line that has it.
type policyFault struct {
	At, Text string
	Line     string // "" if it is not known
}

// faultPlace is how faults begin that name a place.
var faultPlace = regexp.MustCompile(`^((?:[^\s:]+/)?([^\s:/]+)):([0-9]+)(?::[0-9]+)?: `)

// faultsIn returns the faults of the typed text that a text of the API names.
func (t *typedPolicies) faultsIn(text string) (all []policyFault) {
	for line := range strings.SplitSeq(text, "\n") {
		at := faultPlace.FindStringSubmatch(line)
		if at == nil {
			if strings.TrimSpace(line) != "" {
				all = append(all, policyFault{Text: line})
			}
			continue
		}
		f := policyFault{At: strings.TrimSuffix(at[0], ": "), Text: line[len(at[0]):]}
		for _, file := range []struct{ path, text string }{{t.path, t.text}, {t.tests, t.testsText}} {
			lines := strings.Split(file.text, "\n")
			if n, err := strconv.Atoi(at[3]); err == nil && file.path != "" && (at[1] == file.path || strings.HasSuffix(at[1], "/"+file.path)) && n >= 1 && n <= len(lines) {
				f.Line = strings.TrimSuffix(lines[n-1], "\r")
			}
		}
		all = append(all, f)
	}
	return all
}

// looked returns the findings of a button. A fault in the typed text is a finding too.
func (t *typedPolicies) looked(l *policyLook, err error) (formDone, error) {
	problem, other := problemIn(err)
	if other != nil || problem == nil {
		return formDone{Result: l}, other
	}
	if problem.Code != switchboard.CodeConfig {
		return formDone{Result: l}, err
	}
	l.Faults = t.faultsIn(problem.Detail)
	return formDone{Result: l}, nil
}

// checkPolicy asks for mistakes in the typed text, and for its effect on each task.
func checkPolicy(q *viewQuery, t *typedPolicies, _ url.Values) (formDone, error) {
	l := &policyLook{Check: &admin.PolicyCheck{}}
	tenant := q.state.Get("tenant")
	err := q.send(http.MethodPost, linkTo("/v1/policies/check", nil, "tenant", tenant), map[string]any{"files": t.proposed()}, l.Check)
	if err != nil {
		l.Check = nil
		return t.looked(l, err)
	}
	l.Stopped = l.Check.Stopped
	var tried struct{ Trial *change.Trial }
	address := linkTo("/v1/configuration/file", nil, "path", pathOfPolicy(q, t.path), "dry_run", "true", "skip_past", "true")
	err = q.send(http.MethodPut, address, map[string]string{"text": t.text}, &tried)
	if l.Trial = tried.Trial; l.Trial != nil {
		for _, f := range l.Trial.Faults {
			l.Faults = append(l.Faults, t.faultsIn(f)...)
		}
	}
	return t.looked(l, err)
}

// testPolicy runs the tests of the tenant with the typed text.
func testPolicy(q *viewQuery, t *typedPolicies, _ url.Values) (formDone, error) {
	l := &policyLook{Run: &admin.PolicyTestRun{}}
	err := q.send(http.MethodPost, policyAddress(q, "/policies/test"), map[string]any{"files": t.proposed()}, l.Run)
	if err != nil {
		l.Run = nil
	}
	return t.looked(l, err)
}

// tryPolicy evaluates what was typed for the input of a recorded decision.
func tryPolicy(q *viewQuery, t *typedPolicies, fields url.Values) (formDone, error) {
	l := &policyLook{}
	body := map[string]any{"files": t.proposed(), "decision": fields.Get("decision"), "expressions": true}
	if n, err := strconv.Atoi(fields.Get("requirement")); err == nil {
		body["requirement"] = n
	}
	if text := strings.TrimSpace(fields.Get("arguments")); text != "" {
		var arguments map[string]any
		if err := json.Unmarshal([]byte(text), &arguments); err != nil {
			return formDone{}, &refusalError{access.Problem{Status: http.StatusUnprocessableEntity, Detail: "the arguments are no JSON object: " + err.Error()}}
		}
		body["input"] = map[string]any{"phase": "call", "call": map[string]any{"arguments": json.RawMessage(text)}}
	}
	var got admin.PolicyEvaluation
	err := q.send(http.MethodPost, linkTo("/v1/policies/eval", nil, "tenant", q.state.Get("tenant")), body, &got)
	l.Evaluation, l.Stopped = got.Evaluation, got.Stopped
	if l.Evaluation != nil {
		for i := range l.Evaluation.Layers {
			if l.Evaluation.Layers[i].Layer == "tenant" {
				l.Own = &l.Evaluation.Layers[i]
			}
		}
	}
	return t.looked(l, err)
}

// comparePolicy starts a comparison of the typed text with last week's decisions.
func comparePolicy(q *viewQuery, t *typedPolicies, _ url.Values) (formDone, error) {
	l := &policyLook{Comparison: &whatif.Comparison{}}
	body := map[string]any{"files": []any{map[string]string{"path": pathOfPolicy(q, t.path), "text": t.text}}}
	err := q.send(http.MethodPost, linkTo("/v1/policy-diffs", nil, "tenant", q.state.Get("tenant")), body, l.Comparison)
	if err != nil {
		l.Comparison = nil
	}
	return t.looked(l, err)
}

// lookAtPolicy says how far a comparison is.
func lookAtPolicy(q *viewQuery, fields url.Values) (formDone, error) {
	l := &policyLook{Comparison: &whatif.Comparison{}}
	err := q.get(linkTo("/v1/policy-diffs/"+url.PathEscape(fields.Get("compare")), nil, "tenant", q.state.Get("tenant")), l.Comparison)
	if err != nil {
		l.Comparison = nil
	}
	return formDone{Result: l}, err
}

// savePolicy saves what was typed over the files that it was begun with: first the rules, then their tests.
func savePolicy(q *viewQuery, t *typedPolicies, fields url.Values) (formDone, error) {
	l := &policyLook{}
	for _, f := range []struct{ path, text, etag string }{{t.path, t.text, t.etag}, {t.tests, t.testsText, t.etag2}} {
		if f.path == "" {
			continue
		}
		path := pathOfPolicy(q, f.path)
		var is struct{ Text string }
		if problem, err := problemIn(q.get(linkTo("/v1/configuration/file", nil, "path", path), &is)); err != nil {
			return formDone{}, err
		} else if problem == nil && is.Text == f.text {
			continue
		}
		id, err := saveText(q, path, f.text, f.etag, strings.TrimSpace(fields.Get("reason")))
		if err != nil {
			done, err := t.conflicts(q, l, path, f.text, f.etag, err)
			if refused, _ := problemIn(err); refused != nil && len(l.Saved) > 0 {
				refused.Hint = strings.TrimSpace("The rules are saved and in force as change " + l.Saved[0] + "; their tests are not saved. " + refused.Hint)
			}
			return done, err
		}
		l.Saved, l.renewed = append(l.Saved, id), append(l.renewed, path)
	}
	return formDone{Next: linkTo("/policies/file", q.state, "saved", strings.Join(l.Saved, " "))}, nil
}

// saveText saves a text over the content with the entity tag, "" for a new file, and returns the id of the change.
func saveText(q *viewQuery, path, text, etag, reason string) (string, error) {
	body, err := json.Marshal(map[string]string{"text": text, "reason": reason})
	if err != nil {
		return "", err
	}
	header := http.Header{"Content-Type": {"application/json"}, "If-Match": {etag}}
	if etag == "" {
		header = http.Header{"Content-Type": {"application/json"}, "If-None-Match": {"*"}}
	}
	answer := q.call(http.MethodPut, linkTo("/v1/configuration/file", nil, "path", path), body, header)
	if err := answer.refusal(); err != nil {
		return "", err
	}
	var made struct{ Change change.Revision }
	err = json.Unmarshal(answer.body.Bytes(), &made)
	return made.Change.ID, err
}

// conflicts names the person who has changed the file since the typed text was begun, and gives the difference.
func (t *typedPolicies) conflicts(q *viewQuery, l *policyLook, path, text, etag string, why error) (formDone, error) {
	problem, err := problemIn(why)
	switch {
	case err != nil:
		return formDone{}, err
	case problem.Status != http.StatusPreconditionFailed:
		l.Faults = t.faultsIn(problem.Detail)
		return formDone{Result: l}, why
	}
	l.renewed = append(l.renewed, path)
	list, err := changesOfFiles(q)
	if err != nil {
		return formDone{}, err
	}
	for _, c := range list {
		if c.Path != path {
			continue
		}
		if c.AfterDigest == strings.Trim(etag, `"`) {
			break
		}
		l.Others = append(l.Others, c)
	}
	var tried struct{ Trial *change.Trial }
	if refused, err := problemIn(q.send(http.MethodPut, linkTo("/v1/configuration/file", nil, "path", path, "dry_run", "true", "skip_past", "true"), map[string]string{"text": text}, &tried)); err != nil {
		return formDone{}, err
	} else if refused == nil && tried.Trial != nil {
		l.Diff = tried.Trial.Diff
	}
	return formDone{Result: l}, why
}

// undoPolicy takes a change back.
func undoPolicy(q *viewQuery, fields url.Values) (formDone, error) {
	var made struct{ Change change.Revision }
	err := q.send(http.MethodPost, "/v1/configuration/changes/"+url.PathEscape(fields.Get("change"))+"/revert", struct{}{}, &made)
	if err != nil {
		return formDone{}, err
	}
	return formDone{Next: linkTo("/policies/file", q.state, "saved", made.Change.ID)}, nil
}

// typedText returns a text of the form: as it was typed, or else that of the file. An empty line goes before it, because browsers drop the first one.
func typedText(sent sentForm, name, file string) string {
	if sent.Act == "" || !sent.Fields.Has(name) {
		return "\n" + file
	}
	return "\n" + sent.Fields.Get(name)
}

// typedTag returns the entity tag of a file that the form was begun with. If that file was saved, or was changed by somebody else and the view shows the difference, it is
// the present one.
func typedTag(sent sentForm, name string, f editedPolicy) string {
	l, _ := sent.Result.(*policyLook)
	if sent.Act == "" || sent.Act == "undo" || !sent.Fields.Has(name) || l != nil && slices.Contains(l.renewed, f.Path) {
		return f.ETag
	}
	return sent.Fields.Get(name)
}

// valueText returns a value of a rule as JSON on one line.
func valueText(v author.RuleValue) string {
	switch {
	case v.Error != "":
		return "error: " + v.Error
	case v.Undefined:
		return "undefined"
	}
	text, err := json.Marshal(v.Value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// codeLines returns the lines of a text of a policy, with each character that is not visible spelt out. Spaces at the begin stay.
func codeLines(text string) (all []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if len(all) == maxLines {
			return append(all, "…")
		}
		trimmed := strings.TrimLeft(line, "\t ")
		all = append(all, strings.ReplaceAll(line[:len(line)-len(trimmed)], "\t", "    ")+shown.Line(trimmed))
	}
	return all
}
