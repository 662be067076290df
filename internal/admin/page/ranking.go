package page

import (
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/whatif"
)

// rankingPath is the view of a tenant's ranking. Its address holds the tenant and the proposal of a person:
//
//	draft    the whole proposed ranking, in JSON; without it, the ranking of the file
//	base     the digest of the file when the draft was begun
//	compare  the comparison of the draft with last week's decisions
//	saved    the change that has just been made
//	move     one move, which leads to the address of the draft with it
//	wrong    why the last move was not made
const rankingPath = "/ranking"

// maxRankedServers limits the servers on the view.
const maxRankedServers = 500

// A rankingView is what the template of the ranking gets.
type rankingView struct {
	Tenant  switchboard.TenantID // "" if the officer must choose one
	File    string
	Missing bool   // there is no such file
	Why     string // why the ranking in the file cannot be shown

	Draft   *rankingDraft // the ranking that is shown
	Changed bool          // it is not that of the file
	Wrong   string        // why the last move was not made
	Lanes   *laneTable
	Verbs   []switchboard.Verb
	ETag    string // of the file
	Base    string // the digest of the file when the draft was begun

	Look *rankingLook

	Last   *change.Revision  // that made the file what it is; nil if it is not known, or has made the file
	Others []change.Revision // since the draft was begun, the newest first
	Moved  bool              // the file has changed since the draft was begun
}

// A rankingLook is what the draft would do.
type rankingLook struct {
	Trial    *change.Trial
	Problem  *access.Problem // why there is no trial
	Commands []string        // that make the same edits

	Comparison *whatif.Comparison
	NotKept    *access.Problem // why there is no comparison, although the address names one
}

// A laneTable has a lane for each class.
type laneTable struct {
	Ranked, Unranked []*rankedLane
	Classless        []lanedServer
	Options          template.HTML // of a choice among all servers; several forms of the view have it
	More             bool          // there are more servers than are shown
}

// A rankedLane is a class and its servers.
type rankedLane struct {
	draftClass
	Servers []lanedServer
}

// A serverInRanking has what the view shows of the status of a server.
type serverInRanking struct {
	ID     switchboard.ServerID `json:"id"`
	Class  string               `json:"class"`
	Health struct {
		State health.State `json:"state"`
	} `json:"health"`
}

// A lanedServer is a server in the lane of its class.
type lanedServer struct {
	ID      switchboard.ServerID
	Score   int    // with its points
	Points  int    // of the rows of adjustments
	Ailment string // "" if it is healthy
}

// Plain reports whether a class may have this name.
func (l *rankedLane) Plain() bool { return isPlainWord(l.Name) }

// tenantOfRanking returns the tenant that the view shows: that of its address, or the only one.
func tenantOfRanking(q *viewQuery) switchboard.TenantID {
	if t := q.state.Get("tenant"); t != "" {
		return switchboard.TenantID(t)
	}
	if all := (viewPages{q.page}).tenantsOf(q.officer); len(all) == 1 {
		return all[0]
	}
	return ""
}

func fileOfRanking(t switchboard.TenantID) string { return "tenants/" + string(t) + "/tenant.yaml" }

// askRanking returns the address of the servers that are ranked.
func askRanking(q *viewQuery) string {
	t := tenantOfRanking(q)
	if t == "" {
		return "/v1/tenants"
	}
	return linkTo("/v1/servers", nil, "tenant", string(t), "limit", strconv.Itoa(maxRankedServers))
}

// A tenantText is the text of a tenant's file.
type tenantText struct {
	path, text, etag string
	missing          bool
	ranking          *rankingDraft // nil if it cannot be read, as why says
	why              string
}

// readTenantText reads the file of the tenant.
func readTenantText(q *viewQuery, t switchboard.TenantID) (*tenantText, error) {
	f := &tenantText{path: fileOfRanking(t)}
	answer := q.call(http.MethodGet, linkTo("/v1/configuration/file", nil, "path", f.path), nil, nil)
	if answer.status == http.StatusNotFound {
		f.missing = true
		return f, nil
	}
	if err := answer.refusal(); err != nil {
		return nil, err
	}
	var body struct{ Text string }
	if err := json.Unmarshal(answer.body.Bytes(), &body); err != nil {
		return nil, err
	}
	f.text, f.etag = body.Text, answer.header.Get("ETag")
	var err error
	if f.ranking, err = readDraft(f.path, []byte(f.text)); err != nil {
		f.why = err.Error()
	}
	return f, nil
}

// draftOf returns the ranking that the address proposes, or the ranking of the file if it proposes none.
func (f *tenantText) draftOf(q *viewQuery) (*rankingDraft, error) {
	if text := q.state.Get("draft"); text != "" {
		return parseDraft(text)
	}
	return parseDraft(f.ranking.String()) // a copy
}

// settleRanking carries a move out: it returns the address of the draft with the move, "" if the address has none.
func settleRanking(q *viewQuery) string {
	op := q.state.Get("move")
	t := tenantOfRanking(q)
	if op == "" || t == "" {
		return ""
	}
	next := url.Values{}
	if named := q.state.Get("tenant"); named != "" {
		next.Set("tenant", named)
	}
	section := map[string]string{"class": "classes", "server": "prefer", "row": "prefer", "adjust": "adjust"}[op[:max(0, strings.IndexByte(op, '/'))]]
	f, err := readTenantText(q, t)
	if err != nil || f.ranking == nil {
		return linkTo(rankingPath, next) // which says what is wrong
	}
	d, err := f.draftOf(q)
	if err == nil {
		err = d.move(op, q.state)
	}
	if wrong, _ := errors.AsType[moveError](err); wrong != "" {
		next.Set("wrong", string(wrong))
	} else if err != nil {
		next.Set("wrong", errDraft.Error())
		return linkTo(rankingPath, next)
	}
	if d.String() != f.ranking.String() {
		next.Set("draft", d.String())
		next.Set("base", strings.Trim(f.etag, `"`))
		if base := q.state.Get("base"); base != "" {
			next.Set("base", base)
		}
	}
	return linkTo(rankingPath, next) + "#" + section
}

// loadRanking makes the view of the ranking.
func loadRanking(q *viewQuery, answer []byte) (any, error) {
	v := &rankingView{Tenant: tenantOfRanking(q), Verbs: switchboard.Verbs, Wrong: q.state.Get("wrong")}
	if v.Tenant == "" {
		return v, nil
	}
	var servers struct {
		Servers []serverInRanking `json:"servers"`
		Next    string            `json:"next"`
	}
	if err := decodeLarge(answer, &servers); err != nil {
		return nil, err
	}
	f, err := readTenantText(q, v.Tenant)
	if err != nil {
		return nil, err
	}
	v.File, v.Missing, v.Why, v.ETag = f.path, f.missing, f.why, f.etag
	if f.ranking == nil {
		return v, nil
	}
	if v.Draft, err = f.draftOf(q); err != nil {
		v.Draft, v.Wrong = f.ranking, err.Error()
	}
	v.Base = q.state.Get("base")
	if !isPlainWord(v.Base) || len(v.Base) > 64 {
		v.Base = strings.Trim(f.etag, `"`)
	}
	v.Changed = v.Draft.String() != f.ranking.String()
	v.Lanes = newLaneTable(v.Draft, servers.Servers)
	v.Lanes.More = servers.Next != ""
	if v.Look, err = lookAtDraft(q, v, f); err != nil {
		return nil, err
	}
	return v, v.readHistory(q)
}

// lookAtDraft asks what the draft would do. Without a draft, it asks which tools tasks get now.
func lookAtDraft(q *viewQuery, v *rankingView, f *tenantText) (*rankingLook, error) {
	l := &rankingLook{}
	edits := v.Draft.editsFrom(f.ranking)
	for _, e := range edits {
		l.Commands = append(l.Commands, e.command(f.path))
	}
	text, err := applyDraft(f.path, []byte(f.text), edits)
	if err != nil {
		l.Problem = &access.Problem{Detail: err.Error(), Hint: "change this file with an editor: switchboard config get " + f.path}
		return l, nil //nolint:nilerr // the view says it
	}
	var tried struct{ Trial *change.Trial }
	address := linkTo("/v1/configuration/file", nil, "path", f.path, "dry_run", "true", "skip_past", "true")
	err = q.send(http.MethodPut, address, map[string]string{"text": string(text)}, &tried)
	if l.Problem, err = problemIn(err); err != nil {
		return nil, err
	}
	l.Trial = tried.Trial
	if id := q.state.Get("compare"); id != "" && v.Changed {
		c := &whatif.Comparison{}
		err = q.get(linkTo("/v1/policy-diffs/"+url.PathEscape(id), nil, "tenant", string(v.Tenant)), c)
		if l.NotKept, err = problemIn(err); err != nil {
			return nil, err
		}
		if l.NotKept == nil {
			l.Comparison = c
		}
	}
	return l, nil
}

// problemIn returns the refusal of the API that err is, and any other error.
func problemIn(err error) (*access.Problem, error) {
	if refused, _ := errors.AsType[*refusalError](err); refused != nil {
		return &refused.Problem, nil
	}
	return nil, err
}

// readHistory reads who has changed the file.
func (v *rankingView) readHistory(q *viewQuery) error {
	list, err := changesOfFiles(q)
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(list, func(c change.Revision) bool { return c.Path != v.File })
	now := strings.Trim(v.ETag, `"`)
	if len(own) > 0 && own[0].AfterDigest == now && own[0].BeforeDigest != "" {
		v.Last = &own[0]
	}
	if v.Moved = v.Changed && v.Base != now; v.Moved {
		for _, c := range own {
			if c.AfterDigest == v.Base {
				break
			}
			v.Others = append(v.Others, c)
		}
	}
	return nil
}

// Saved reports whether the change has the id, which the address gives to the change that was just made.
func (v *rankingView) Saved(id string) bool { return v.Last != nil && id != "" && v.Last.ID == id }

// newLaneTable puts the servers into the lanes of their classes.
func newLaneTable(d *rankingDraft, servers []serverInRanking) *laneTable {
	t := &laneTable{}
	names := make([]string, 0, len(servers))
	for _, c := range d.Classes {
		t.Ranked = append(t.Ranked, &rankedLane{draftClass: c})
	}
	lane := func(list []*rankedLane, class string) *rankedLane {
		if i := slices.IndexFunc(list, func(l *rankedLane) bool { return l.Name == class }); i >= 0 {
			return list[i]
		}
		return nil
	}
	for i := range servers {
		s := &servers[i]
		if isPlainWord(string(s.ID)) { // else it is no id
			names = append(names, string(s.ID))
		}
		one := lanedServer{ID: s.ID}
		for _, a := range d.Adjust {
			if switchboard.MatchPattern(a.Server, string(s.ID)) {
				one.Points += a.By
			}
		}
		one.Score = one.Points
		if s.Health.State != health.Healthy {
			one.Ailment = string(s.Health.State)
		}
		l := lane(t.Ranked, s.Class)
		switch {
		case s.Class == "":
			t.Classless = append(t.Classless, one)
			continue
		case l != nil:
			one.Score += l.Score
		default:
			if l = lane(t.Unranked, s.Class); l == nil {
				l = &rankedLane{draftClass: draftClass{Name: s.Class}}
				t.Unranked = append(t.Unranked, l)
			}
		}
		l.Servers = append(l.Servers, one)
	}
	slices.SortFunc(t.Unranked, func(a, b *rankedLane) int { return strings.Compare(a.Name, b.Name) })
	t.Options = optionsOf(names)
	return t
}

// optionsOf returns the options of a choice among names. A template takes ten times as long for hundreds of them.
func optionsOf(names []string) template.HTML {
	var b strings.Builder
	for _, name := range names {
		b.WriteString("<option>")
		b.WriteString(template.HTMLEscapeString(name))
		b.WriteString("</option>")
	}
	return template.HTML(b.String()) //nolint:gosec // each name is escaped just above
}

// A placedTool is a tool in the list of a task, with its place in the list before, from 1; 0 if it was not there.
type placedTool struct {
	Tool  string
	Was   int
	Moved bool // another tool comes first now, or no more
}

// placeTools compares the lists of a task.
func placeTools(before, after []string) (all []placedTool) {
	for i, tool := range after {
		was := slices.Index(before, tool) + 1
		all = append(all, placedTool{tool, was, was != i+1})
	}
	return all
}

// rankingForms are what a person does with a draft.
var rankingForms = map[string]viewForm{"save": saveRanking, "undo": undoRanking, "compare": compareRanking}

// draftedText returns the text of the file with the draft of the address.
func draftedText(q *viewQuery) (f *tenantText, text []byte, err error) {
	if f, err = readTenantText(q, tenantOfRanking(q)); err != nil {
		return nil, nil, err
	}
	refuse := func(text string) error {
		return &refusalError{access.Problem{Status: http.StatusUnprocessableEntity, Detail: text}}
	}
	if f.ranking == nil {
		return nil, nil, refuse("the ranking of the file cannot be read now, so nothing was changed")
	}
	d, err := f.draftOf(q)
	if err != nil {
		return nil, nil, refuse(err.Error())
	}
	if text, err = applyDraft(f.path, []byte(f.text), d.editsFrom(f.ranking)); err != nil {
		return nil, nil, refuse(err.Error())
	}
	return f, text, nil
}

// saveRanking saves the draft over the content that the form was made for.
func saveRanking(q *viewQuery, fields url.Values) (formDone, error) {
	f, text, err := draftedText(q)
	if err != nil {
		return formDone{}, err
	}
	body, err := json.Marshal(map[string]string{"text": string(text), "reason": strings.TrimSpace(fields.Get("reason"))})
	if err != nil {
		return formDone{}, err
	}
	answer := q.call(http.MethodPut, linkTo("/v1/configuration/file", nil, "path", f.path), body, http.Header{"Content-Type": {"application/json"}, "If-Match": {fields.Get("etag")}})
	return endChange(q, answer)
}

// endChange leads the browser to the change that was made.
func endChange(q *viewQuery, answer *keptAnswer) (formDone, error) {
	if err := answer.refusal(); err != nil {
		return formDone{}, err
	}
	var made struct{ Change change.Revision }
	if err := json.Unmarshal(answer.body.Bytes(), &made); err != nil {
		return formDone{}, err
	}
	return formDone{Next: linkTo(rankingPath, nil, "tenant", q.state.Get("tenant"), "saved", made.Change.ID)}, nil
}

// undoRanking takes a change back.
func undoRanking(q *viewQuery, fields url.Values) (formDone, error) {
	answer := q.call(http.MethodPost, "/v1/configuration/changes/"+url.PathEscape(fields.Get("change"))+"/revert", nil, nil)
	return endChange(q, answer)
}

// compareRanking starts a comparison of the draft with last week's decisions.
func compareRanking(q *viewQuery, _ url.Values) (formDone, error) {
	f, text, err := draftedText(q)
	if err != nil {
		return formDone{}, err
	}
	var c whatif.Comparison
	body := map[string]any{"files": []any{map[string]string{"path": f.path, "text": string(text)}}}
	if err := q.send(http.MethodPost, linkTo("/v1/policy-diffs", nil, "tenant", string(tenantOfRanking(q))), body, &c); err != nil {
		return formDone{}, err
	}
	return formDone{Next: linkTo(rankingPath, q.state, "compare", c.ID) + "#week"}, nil
}
