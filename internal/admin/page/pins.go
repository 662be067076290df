package page

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin/pins"
	"github.com/summit-switchboard/switchboard/internal/shown"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// pinPath is the address of the view of one pin. Its query names the definition, because names have slashes.
const pinPath = "/pins/one"

// pinsView is the view of all pins.
var pinsView = pageView{path: "/pins", title: "Pins", needs: switchboard.OfficeOperator, ofAll: true, template: "pins.html", live: onFigures, api: pinsAt, load: loadPins}

// pinView is the view of one pin. It does not change by itself: a person decides about the definition that the view shows.
var pinView = pageView{
	path: pinPath, title: "A pin", inside: "/pins", needs: switchboard.OfficeOperator, ofAll: true, template: "pin.html", live: neverReads, api: pinAt("/v1/pins/one"), load: loadPin,
	forms: map[string]viewForm{"accept": decidePin("accept"), "suspend": decidePin("suspend"), "retire": decidePin("retire"), "deprecate": decidePin("deprecate")},
}

// pinFilters are the fields of the form that selects pins, as the API has them.
var pinFilters = []string{"server", "kind", "state"}

// pinsAt is the api of the list of pins.
func pinsAt(q *viewQuery) string {
	pairs := []string{"after", q.state.Get("after")}
	for _, name := range pinFilters {
		pairs = append(pairs, name, strings.TrimSpace(q.state.Get(name)))
	}
	return linkTo("/v1/pins", nil, pairs...)
}

// pinAt returns a function for pageView.api, which asks a path of the API about the definition of the view.
func pinAt(path string) func(*viewQuery) string {
	return func(q *viewQuery) string { return linkTo(path, q.pick("server", "kind", "name")) }
}

// addressOfPin returns the address of the view of a pin.
func addressOfPin(row *pins.PinRow) string {
	return linkTo(pinPath, nil, "server", string(row.Server), "kind", string(row.Kind), "name", row.Name)
}

// addressOfToolPin returns the address of the view of the pin of a tool, which is SERVER/TOOL.
func addressOfToolPin(tool string) string {
	server, name, _ := strings.Cut(tool, "/")
	return addressOfPin(&pins.PinRow{Server: switchboard.ServerID(server), Kind: switchboard.PinTool, Name: name})
}

// A pinsPage is the data of the view of all pins.
type pinsPage struct {
	At                 time.Time
	Waiting, Rest      []pins.PinRow // those that need a person, and the others
	Next               string
	Total, NeedsPerson int
	Filtered           bool
	Kinds              []switchboard.PinKind
	States             []string
}

func loadPins(q *viewQuery, answer []byte) (any, error) {
	var list struct {
		Pins        []pins.PinRow
		Next        string
		Total       int
		NeedsPerson int `json:"needs_person"`
	}
	v := &pinsPage{
		At:     time.Now(),
		Kinds:  []switchboard.PinKind{switchboard.PinTool, switchboard.PinPrompt, switchboard.PinTemplate, switchboard.PinInstructions, switchboard.PinHandshake},
		States: []string{pins.Frozen},
	}
	for _, s := range []switchboard.LifeState{switchboard.LifeSuspended, switchboard.LifeTesting, switchboard.LifeNew, switchboard.LifeActive, switchboard.LifeDeprecated, switchboard.LifeRetired} {
		v.States = append(v.States, string(s))
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, err
	}
	v.Next, v.Total, v.NeedsPerson = list.Next, list.Total, list.NeedsPerson
	for _, row := range list.Pins {
		if row.NeedsPerson {
			v.Waiting = append(v.Waiting, row)
		} else {
			v.Rest = append(v.Rest, row)
		}
	}
	q.command = "switchboard pins list"
	for _, name := range pinFilters {
		if value := strings.TrimSpace(q.state.Get(name)); value != "" {
			q.command += " --" + name + " " + shellWord(value)
			v.Filtered = true
		}
	}
	return v, nil
}

// A pinPage is the data of the view of one pin.
type pinPage struct {
	pins.PinDetail
	At    time.Time
	Lines []diffLine // of the difference, or of the definition in use
	Cut   int        // lines that are not shown; a person cannot say yes to them here

	// The digest of the definition that the view shows, if the officer may let it in; else "".
	Accept                              string
	MaySuspend, MayRetire, MayDeprecate bool
}

func loadPin(q *viewQuery, answer []byte) (any, error) {
	v := &pinPage{At: time.Now()}
	if err := json.Unmarshal(answer, &v.PinDetail); err != nil {
		return nil, err
	}
	q.command = v.Command("diff")
	v.Lines, v.Cut = definitionLines(v.Text, false)
	digest := v.Digest
	if v.Offered != "" {
		v.Lines, v.Cut = definitionLines(v.Diff, true)
		digest = v.Offered
	}
	decided := (v.State == switchboard.LifeActive || v.KeptOut) && v.By != "" && v.Offered == ""
	if len(v.Lines) > 0 && v.Cut == 0 && !decided {
		v.Accept = digest
	}
	v.MayRetire = v.State != switchboard.LifeRetired
	v.MaySuspend = v.MayRetire && v.State != switchboard.LifeSuspended
	v.MayDeprecate = v.Kind == switchboard.PinTool && (v.State == switchboard.LifeActive || v.State == switchboard.LifeDeprecated)
	return v, nil
}

// Command returns the command that begins with the verb: diff, accept, suspend, retire or deprecate.
func (v *pinPage) Command(verb string) string {
	command := "switchboard pins " + verb + " " + shellWord(v.Subject())
	if v.Kind != switchboard.PinTool {
		command += " --kind " + string(v.Kind)
	}
	return command
}

// Bounds of a definition that is shown. The API folds longer lines.
const (
	maxDefinitionLines = 1000
	maxDefinitionLine  = 1000 // bytes
)

// definitionLines returns the lines of a definition, or of a difference of two, and how many are left out. The API has spelt out what is not visible, so a backslash stays
// as it is.
func definitionLines(text string, isDiff bool) (lines []diffLine, cut int) {
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if isDiff && len(lines) == 0 && !strings.HasPrefix(line, "@@") || text == "" {
			continue // the names of the two, or nothing
		}
		if len(lines) == maxDefinitionLines || len(line) > maxDefinitionLine {
			cut++
			continue
		}
		sign := line[:min(1, len(line))]
		lines = append(lines, diffLine{shown.LineOfJSON(line), isDiff && sign == "+", isDiff && sign == "-"})
	}
	return lines, cut
}

// decidePin returns the form that carries a decision out.
func decidePin(what string) viewForm {
	own := map[string]string{"accept": "digest", "deprecate": "successor"}[what]
	return func(q *viewQuery, fields url.Values) (formDone, error) {
		body := map[string]string{}
		for _, name := range []string{"reason", own} {
			if text := strings.TrimSpace(fields.Get(name)); name != "" && text != "" {
				body[name] = text
			}
		}
		done := &pins.PinDetail{}
		err := q.send(http.MethodPost, pinAt("/v1/pins/"+what)(q), body, done)
		return formDone{Result: done}, err
	}
}

// classWords says what the class of a change means.
func classWords(class string) string {
	switch class {
	case "words":
		return "Only words differ: descriptions, titles, icons or examples. Or a hint promises more than before."
	case "wider":
		return "The schemas differ, and it is proven that each call that fitted still fits, and that results do."
	case "narrower":
		return "The schemas or other members differ, and it is not proven that each call that fitted still fits."
	case "freer":
		return "A hint or a block of capabilities allows more than before: it may write, destroy, or reach further."
	case "poisoned":
		return "It has a blocking finding that the admitted definition has not."
	}
	return ""
}

// pinWords says what the state of a pin means, after its name.
func pinWords(row *pins.PinRow) string {
	switch {
	case row.KeptOut:
		return "is kept out by the operator's rules: no task gets it"
	case row.Frozen && row.State == switchboard.LifeTesting:
		return "is on trial and frozen: tenants that try it keep the admitted definition"
	case row.Frozen:
		return "is frozen: clients keep the admitted definition"
	}
	switch row.State {
	case switchboard.LifeActive:
		return "is active: tasks can get it"
	case switchboard.LifeTesting:
		return "is on trial: only tenants that try it get it"
	case switchboard.LifeNew:
		return "is new: it is not used before a person lets it in"
	case switchboard.LifeSuspended:
		return "is suspended: it is not used until a person accepts it, or the admitted definition is offered again"
	case switchboard.LifeDeprecated:
		return "is deprecated: it is used, and names its successor"
	case switchboard.LifeRetired:
		return "is retired: it is not used any more"
	}
	return "is " + shown.Line(string(row.State))
}

// pinClass names the kind of a pin's state, as the style does.
func pinClass(row *pins.PinRow) string {
	switch row.State {
	case switchboard.LifeSuspended, switchboard.LifeNew:
		if row.NeedsPerson {
			return "ill"
		}
		return "between"
	case switchboard.LifeActive:
		if !row.Frozen {
			return "well"
		}
	}
	return "between"
}
