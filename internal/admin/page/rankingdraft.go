package page

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/document"
)

// Bounds of a draft.
const (
	maxDraft     = 16 << 10 // bytes in an address
	maxDraftRows = 100      // of each list
	draftScore   = 1_000_000
	draftStep    = 100 // between two classes of a list, as the configuration has it
)

// A rankingDraft is the ranking of a tenant: as its file has it, or as a person proposes it in an address.
type rankingDraft struct {
	Classes []draftClass  `json:"classes,omitempty"` // best first
	Scores  bool          `json:"scores,omitempty"`  // the file gives each class its score
	Prefer  []draftPrefer `json:"prefer,omitempty"`
	Adjust  []draftAdjust `json:"adjust,omitempty"`
}

type draftClass struct {
	Name  string `json:"class"`
	Score int    `json:"score"`
}

type draftPrefer struct {
	Verb     string   `json:"verb"`
	Resource string   `json:"resource"`
	Servers  []string `json:"servers"`
}

type draftAdjust struct {
	Server string `json:"server"`
	By     int    `json:"by"`
}

// readDraft reads the ranking in the text of a tenant's file. The error says where the text is not as it must be.
func readDraft(name string, text []byte) (*rankingDraft, error) {
	d, sink := &rankingDraft{}, &document.Sink{}
	top, ok := document.ReadYAML(name, text, sink)
	if !ok {
		return nil, sink.Err(name)
	}
	ranking, ok := top.FindMember("ranking")
	if !ok || ranking.Kind == document.KindNull {
		return d, nil
	}
	if v, ok := ranking.FindMember("classes"); ok && v.Kind == document.KindMap {
		d.Scores = true
		for _, c := range v.ReadNamed(document.MaxItems, false) {
			d.Classes = append(d.Classes, draftClass{c.Name, c.Value.ReadInteger(-draftScore, draftScore)})
		}
	} else if ok {
		for _, c := range v.ReadTexts() {
			d.Classes = append(d.Classes, draftClass{Name: c.String})
		}
	}
	member := func(row document.Value, name string) document.Value {
		v, ok := row.FindMember(name)
		if !ok {
			row.Fault("the row has no %s", name)
		}
		return v
	}
	for _, row := range listMember(ranking, "prefer") {
		p := draftPrefer{}
		p.Verb, _ = member(row, "verb").ReadText()
		p.Resource, _ = member(row, "resource").ReadText()
		for _, s := range member(row, "servers").ReadTexts() {
			p.Servers = append(p.Servers, s.String)
		}
		d.Prefer = append(d.Prefer, p)
	}
	for _, row := range listMember(ranking, "adjust") {
		a := draftAdjust{}
		a.Server, _ = member(row, "server").ReadText()
		a.By = member(row, "by").ReadInteger(-draftScore, draftScore)
		d.Adjust = append(d.Adjust, a)
	}
	if sink.Faulty() {
		return nil, sink.Err(name)
	}
	d.sort()
	return d, nil
}

// listMember returns the items of a list in a map.
func listMember(v document.Value, name string) []document.Value {
	list, ok := v.FindMember(name)
	if !ok {
		return nil
	}
	return list.ReadList(document.MaxItems)
}

var errDraft = errors.New("the address holds no ranking that can be read, or one that is too long")

// parseDraft reads a draft in an address.
func parseDraft(text string) (*rankingDraft, error) {
	d := &rankingDraft{}
	r := json.NewDecoder(strings.NewReader(text))
	r.DisallowUnknownFields()
	err := r.Decode(d)
	_, rest := r.Token()
	if len(text) > maxDraft || err != nil || !errors.Is(rest, io.EOF) || max(len(d.Classes), len(d.Prefer), len(d.Adjust)) > maxDraftRows {
		return nil, errDraft
	}
	for _, p := range d.Prefer {
		if len(p.Servers) == 0 || len(p.Servers) > maxDraftRows {
			return nil, errDraft
		}
	}
	d.sort()
	return d, nil
}

// String returns the draft as parseDraft reads it, in ASCII: no character of it hides in an address.
func (d *rankingDraft) String() string {
	text, err := json.Marshal(d)
	if err != nil {
		return "" // texts and numbers always have a JSON form
	}
	var b strings.Builder
	for _, r := range string(text) {
		if r < 0x7f {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// sort puts the classes in the order of their scores. Those of a list get the scores of their places.
func (d *rankingDraft) sort() {
	if d.Scores {
		slices.SortStableFunc(d.Classes, func(a, b draftClass) int { return cmp.Compare(b.Score, a.Score) })
		return
	}
	for i := range d.Classes {
		d.Classes[i].Score = draftStep * (len(d.Classes) - 1 - i)
	}
}

// moveError is the error of a move that cannot be made, since the form lacks something. Its text is shown.
type moveError string

func (e moveError) Error() string { return string(e) }

// move makes one move: the part of the ranking, what is done, and which row, parted by "/". fields are those of its form.
func (d *rankingDraft) move(op string, fields url.Values) error {
	part, rest, _ := strings.Cut(op, "/")
	act, which, _ := strings.Cut(rest, "/")
	var err error
	switch part {
	case "class":
		err = d.moveClass(act, which, fields)
	case "server":
		err = d.moveServer(act, which, fields.Get("server"))
	case "row":
		err = d.moveRow(act, which, fields)
	case "adjust":
		err = d.moveAdjust(act, which, fields)
	default:
		err = moveError("this move is none of the view")
	}
	d.sort()
	return err
}

func (d *rankingDraft) moveClass(act, which string, fields url.Values) error {
	if act == "in" {
		if which != "" && !slices.ContainsFunc(d.Classes, func(c draftClass) bool { return c.Name == which }) {
			d.Classes = append(d.Classes, draftClass{Name: which})
		}
		return nil
	}
	at, to, _ := strings.Cut(which, "/")
	i, err := strconv.Atoi(at)
	switch {
	case err != nil || i < 0 || i >= len(d.Classes):
	case act == "to":
		stepTo(i, to, len(d.Classes), d.swapClasses)
	case act == "out":
		d.Classes = slices.Delete(d.Classes, i, i+1)
	case act == "score":
		return readPoints(fields.Get("score"), &d.Classes[i].Score)
	case act == "up" && i > 0:
		d.swapClasses(i-1, i)
	case act == "down" && i+1 < len(d.Classes):
		d.swapClasses(i, i+1)
	}
	return nil
}

// stepTo moves row i of n to a place, past one neighbor after the other.
func stepTo(i int, place string, n int, swap func(above, below int)) {
	to, err := strconv.Atoi(place)
	if err != nil || to < 0 || to >= n {
		return
	}
	for ; i > to; i-- {
		swap(i-1, i)
	}
	for ; i < to; i++ {
		swap(i, i+1)
	}
}

// swapClasses exchanges two neighbors, and the scores that they have by themselves. Of equal scores, one is raised.
func (d *rankingDraft) swapClasses(above, below int) {
	a, b := &d.Classes[above], &d.Classes[below]
	a.Score, b.Score = b.Score, a.Score
	if d.Scores && a.Score == b.Score {
		b.Score++
	}
	*a, *b = *b, *a
}

func (d *rankingDraft) moveServer(act, which, server string) error {
	rowText, atText, _ := strings.Cut(which, "/")
	row, err := strconv.Atoi(rowText)
	if err != nil || row < 0 || row >= len(d.Prefer) {
		return nil
	}
	list := &d.Prefer[row].Servers
	if act == "in" {
		if server == "" || slices.Contains(*list, server) {
			return moveError("choose a server that the row does not have yet")
		}
		*list = append(*list, server)
		return nil
	}
	atText, to, _ := strings.Cut(atText, "/")
	at, err := strconv.Atoi(atText)
	if err != nil || at < 0 || at >= len(*list) {
		return nil
	}
	swap := func(above, below int) { (*list)[above], (*list)[below] = (*list)[below], (*list)[above] }
	switch {
	case act == "to":
		stepTo(at, to, len(*list), swap)
	case act == "up" && at > 0:
		swap(at-1, at)
	case act == "down" && at+1 < len(*list):
		swap(at, at+1)
	case act == "out" && len(*list) == 1:
		d.Prefer = slices.Delete(d.Prefer, row, row+1) // a row without servers is a fault
	case act == "out":
		*list = slices.Delete(*list, at, at+1)
	}
	return nil
}

func (d *rankingDraft) moveRow(act, which string, fields url.Values) error {
	if act == "out" {
		if i, err := strconv.Atoi(which); err == nil && i >= 0 && i < len(d.Prefer) {
			d.Prefer = slices.Delete(d.Prefer, i, i+1)
		}
		return nil
	}
	p := draftPrefer{fields.Get("verb"), strings.TrimSpace(fields.Get("resource")), []string{fields.Get("server")}}
	switch {
	case p.Verb == "" || p.Resource == "" || p.Servers[0] == "":
		return moveError("a new row needs a verb, a resource and a server")
	case slices.ContainsFunc(d.Prefer, func(o draftPrefer) bool { return o.Verb == p.Verb && o.Resource == p.Resource }):
		return moveError("there is a row for this verb and this resource; add the server to it")
	}
	d.Prefer = append(d.Prefer, p)
	return nil
}

func (d *rankingDraft) moveAdjust(act, which string, fields url.Values) error {
	if act == "in" {
		a := draftAdjust{Server: strings.TrimSpace(fields.Get("server"))}
		if a.Server == "" {
			return moveError("name a server, or several with *, such as beta-*")
		}
		err := readPoints(fields.Get("by"), &a.By)
		if err == nil {
			d.Adjust = append(d.Adjust, a)
		}
		return err
	}
	i, err := strconv.Atoi(which)
	switch {
	case err != nil || i < 0 || i >= len(d.Adjust):
	case act == "out":
		d.Adjust = slices.Delete(d.Adjust, i, i+1)
	case act == "by":
		return readPoints(fields.Get("by"), &d.Adjust[i].By)
	}
	return nil
}

// readPoints reads a score.
func readPoints(text string, into *int) error {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < -draftScore || n > draftScore {
		return moveError(fmt.Sprintf("points are a whole number from -%d to %d, such as -50", draftScore, draftScore))
	}
	*into = n
	return nil
}

// A draftEdit is an edit of a tenant's file.
type draftEdit struct {
	path  []string
	value any // nil removes
}

// apply makes the edits. All other bytes of the text stay, with their comments.
func applyDraft(name string, text []byte, edits []draftEdit) ([]byte, error) {
	for _, e := range edits {
		var value *document.Node
		if e.value != nil {
			raw, err := json.Marshal(e.value)
			if err != nil {
				return nil, err
			}
			v, ok := document.ReadJSON("value", raw, &document.Sink{})
			if !ok {
				return nil, errDraft
			}
			value = &v.Node
		}
		next, err := edit.Set(name, text, e.path, value)
		if err != nil {
			return nil, err
		}
		text = next
	}
	return text, nil
}

// command returns the command that makes the edit alone.
func (e draftEdit) command(file string) string {
	at := make([]string, len(e.path))
	for i, part := range e.path {
		at[i] = strings.NewReplacer("~", "~0", "/", "~1").Replace(part)
	}
	words := "switchboard config set " + file + " " + quoteWord(strings.Join(at, "/")) + " "
	if e.value == nil {
		return words + "--remove"
	}
	var b bytes.Buffer
	w := json.NewEncoder(&b)
	w.SetEscapeHTML(false)
	if err := w.Encode(e.value); err != nil {
		return ""
	}
	value := quoteWord(strings.TrimSpace(b.String()))
	if strings.HasPrefix(value, "-") {
		words += "-- " // else it would be a flag
	}
	return words + value
}

// quoteWord quotes a word for a shell, if it must be.
func quoteWord(s string) string {
	if isPlainWord(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// isPlainWord reports whether the text is one word of ASCII without meaning to a shell.
func isPlainWord(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./") == ""
}

// editsFrom returns the edits that make this ranking of another one. They change as little as they can, since what they replace loses its comments.
func (d *rankingDraft) editsFrom(was *rankingDraft) (all []draftEdit) {
	if d.String() == was.String() {
		return nil
	}
	if len(d.Classes)+len(d.Prefer)+len(d.Adjust) == 0 {
		return []draftEdit{{path: []string{"ranking"}}}
	}
	if len(was.Classes)+len(was.Prefer)+len(was.Adjust) == 0 { // there may be nothing to add keys to
		return []draftEdit{{[]string{"ranking"}, struct {
			Classes []string      `json:"classes,omitempty"`
			Prefer  []draftPrefer `json:"prefer,omitempty"`
			Adjust  []draftAdjust `json:"adjust,omitempty"`
		}{d.classNames(), d.Prefer, d.Adjust}}}
	}
	all = d.classEdits(was)
	rows := func(list []draftPrefer) (rows []draftRow) {
		for _, p := range list {
			rows = append(rows, draftRow{p.Verb + " " + p.Resource, p, func(path []string, was any) []draftEdit {
				return textEdits(append(path, "servers"), was.(draftPrefer).Servers, p.Servers)
			}})
		}
		return rows
	}
	all = append(all, rowEdits("prefer", rows(was.Prefer), rows(d.Prefer))...)
	points := func(list []draftAdjust) (rows []draftRow) {
		met := map[string]int{}
		for _, a := range list {
			met[a.Server]++
			rows = append(rows, draftRow{fmt.Sprintf("%s %d", a.Server, met[a.Server]), a, func(path []string, was any) []draftEdit {
				if was.(draftAdjust).By == a.By {
					return nil
				}
				return []draftEdit{{append(path, "by"), a.By}}
			}})
		}
		return rows
	}
	return append(all, rowEdits("adjust", points(was.Adjust), points(d.Adjust))...)
}

func (d *rankingDraft) classNames() (all []string) {
	for _, c := range d.Classes {
		all = append(all, c.Name)
	}
	return all
}

func (d *rankingDraft) classEdits(was *rankingDraft) (all []draftEdit) {
	path := []string{"ranking", "classes"}
	if !d.Scores || !was.Scores || len(d.Classes) == 0 {
		return textEdits(path, was.classNames(), d.classNames())
	}
	for _, c := range was.Classes {
		if !slices.ContainsFunc(d.Classes, func(o draftClass) bool { return o.Name == c.Name }) {
			all = append(all, draftEdit{path: append(slices.Clone(path), c.Name)})
		}
	}
	for _, c := range d.Classes {
		if !slices.Contains(was.Classes, c) {
			all = append(all, draftEdit{append(slices.Clone(path), c.Name), c.Score})
		}
	}
	return all
}

// A draftRow is a row of a list. change returns the edits that make it of the row with the same key at the path.
type draftRow struct {
	key    string
	value  any
	change func(path []string, was any) []draftEdit
}

// rowEdits returns the edits of a list of rows, in which rows go, change and come at the end.
func rowEdits(list string, was, next []draftRow) (all []draftEdit) {
	path := []string{"ranking", list}
	has := func(rows []draftRow, key string) int {
		return slices.IndexFunc(rows, func(r draftRow) bool { return r.key == key })
	}
	var kept []draftRow
	for i, r := range slices.Backward(was) {
		if has(next, r.key) >= 0 {
			kept = slices.Insert(kept, 0, r)
		} else {
			all = append(all, draftEdit{path: append(slices.Clone(path), strconv.Itoa(i))})
		}
	}
	switch {
	case len(was) > 0 && len(next) == 0:
		return []draftEdit{{path: path}}
	case len(kept) == 0 && len(next) > 0:
		values := make([]any, len(next))
		for i := range next {
			values[i] = next[i].value
		}
		return []draftEdit{{path, values}}
	}
	for _, r := range next {
		if i := has(kept, r.key); i >= 0 {
			all = append(all, r.change(append(slices.Clone(path), strconv.Itoa(i)), kept[i].value)...)
		} else {
			all = append(all, draftEdit{append(slices.Clone(path), edit.Append), r.value})
		}
	}
	return all
}

// textEdits returns the edits of a list of texts.
func textEdits(path, was, next []string) (all []draftEdit) {
	if slices.Equal(was, next) {
		return nil
	}
	if len(next) == 0 {
		return []draftEdit{{path: path}}
	}
	var kept []string
	for i, text := range slices.Backward(was) {
		if slices.Contains(next, text) {
			kept = slices.Insert(kept, 0, text)
		} else {
			all = append(all, draftEdit{path: append(slices.Clone(path), strconv.Itoa(i))})
		}
	}
	if len(kept) == 0 || len(kept) > len(next) || !slices.Equal(kept, next[:len(kept)]) {
		return []draftEdit{{path, next}}
	}
	for _, text := range next[len(kept):] {
		all = append(all, draftEdit{append(slices.Clone(path), edit.Append), text})
	}
	return all
}
