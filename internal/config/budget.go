package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxBudgetRows limits the budgets of one owner.
const maxBudgetRows = 64

// ownBudget is the id of a tool's own budget if its overlay gives it no other one.
const ownBudget = "own"

// budgetReader is the state of reading the budgets of one owner.
type budgetReader struct {
	*loader
	owner   switchboard.BudgetOwner
	servers []string // those that rows may name
	seen    map[string]document.Value
	budget  *switchboard.Budget // of the row
}

// readBudgets reads the budgets of an owner. servers are those that rows may name.
func (l *loader) readBudgets(v document.Value, owner switchboard.BudgetOwner, servers []string) (all []*switchboard.Budget) {
	seen := map[string]document.Value{}
	for _, item := range v.ReadList(maxBudgetRows) {
		r := &budgetReader{loader: l, owner: owner, servers: servers, seen: seen}
		if b := r.readRow(item); b != nil {
			all = append(all, b)
		}
	}
	return all
}

// readRow reads one budget. It returns nil after a fault that leaves nothing to read.
func (r *budgetReader) readRow(v document.Value) *switchboard.Budget {
	r.budget = &switchboard.Budget{Owner: r.owner, Position: fmt.Sprintf("%s:%d:%d", v.File, v.Line, v.Column)}
	m, ok := v.Open(r.keys())
	if !ok {
		return nil
	}
	m.Read()
	return r.budget
}

// budgetsType is the type of a list of budgets. read may be nil.
func budgetsType(read func(v document.Value)) document.Type {
	return document.MapList("a list of maps", func() *document.Keys {
		return (&budgetReader{loader: &loader{cfg: newConfig()}, budget: &switchboard.Budget{}}).keys()
	}, read)
}

// keys are the keys of a budget.
func (r *budgetReader) keys() *document.Keys {
	k := r.ownKeys()
	k.Rows = slices.Concat([]document.Row{
		{Key: "id", Type: document.Text("an id", r.readID), Required: "name the budget", Doc: "The name of the budget in `switchboard budget status` and in refusals."},
		{Key: "match", Type: document.Map(r.matchKeys, nil), Doc: "Which calls of tools count; all of them if absent. A call must fit each key."},
	}, k.Rows)
	return k
}

// ownKeys are the keys of a tool's own budget: no budget of a tool matches other tools.
func (r *budgetReader) ownKeys() *document.Keys {
	b := r.budget
	pers, windows := textsOf(switchboard.BudgetPers), textsOf(switchboard.BudgetWindows)
	return &document.Keys{
		Rows: []document.Row{
			{Key: "per", Type: document.OneOf("division", func(s string) { b.Per = switchboard.BudgetPer(s) }, pers...), Doc: "Who has the whole limit alone: the `tenant` (the default), or each principal, task, run or tool of it."},
			{
				Key: "limit", Type: document.Custom("an amount such as `10.00`, or a map `{calls: 500}`", document.Schema{"type": []string{"number", "object"}, "minimum": 0, "properties": document.Schema{"calls": document.Schema{"type": "integer", "minimum": 0, "maximum": maxBudgetCalls}}, "required": []string{"calls"}, "additionalProperties": false}, r.readLimit),
				Required: "write an amount, such as 10.00, or a number of calls, such as {calls: 500}", Doc: "The most that calls cost in one window, or how many calls there are at most.",
			},
			{Key: "window", Type: document.OneOf("window", func(s string) { b.Window = switchboard.BudgetWindow(s) }, windows...), Required: "say how long it counts: " + strings.Join(windows, ", "), Doc: "When the budget begins anew: with each hour, day, week (on Monday), each 30 days, month, or never. Hours are those of UTC."},
			{Key: "zone", Type: document.Text("a time zone", func(v document.Value, s string) { b.Zone, b.Location = s, readZone(v, s) }), Doc: "The time zone in which days, weeks and months begin, such as `Europe/Berlin`; UTC if absent."},
			{Key: "warn", Type: document.Custom("a list of percentages such as `80%`", document.Schema{"type": "array", "items": document.Schema{"type": "string", "pattern": `^([1-9][0-9]?|100)%$`}, "uniqueItems": true}, func(v document.Value) { b.Warn = readPercentages(v) }), Doc: "Parts of the limit. When what is used passes one, Switchboard warns once in each window."},
		},
		Hints: map[string]string{"currency": `it stands once in switchboard.yaml, for all budgets`, "calls": "write limit: {calls: 500}", "name": `write "id"`, "period": `write "window"`, "rate": "a rate stands in the tenant's limits"},
	}
}

func textsOf[T ~string](all []T) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = string(s)
	}
	return out
}

func (r *budgetReader) readID(v document.Value, s string) {
	r.budget.ID = s
	if err := switchboard.CheckID(s); err != nil {
		v.Fault("%v", err)
	} else if at, ok := r.seen[s]; ok {
		v.Fault("%s is the id of another budget here, at line %d", v.Shown(), at.Line)
	} else if r.seen != nil {
		r.seen[s] = v
	}
}

// maxBudgetCalls is the largest number of calls of a budget.
const maxBudgetCalls = 1_000_000_000

func (r *budgetReader) readLimit(v document.Value) {
	if v.Kind != document.KindMap {
		m, _ := readMicros(v)
		r.budget.Limit = int64(m)
		return
	}
	calls := 0
	m, ok := v.Open(&document.Keys{Rows: []document.Row{{Key: "calls", Type: document.Integer(0, maxBudgetCalls, &calls), Required: "write {calls: 500}, or an amount such as 10.00"}}})
	if ok {
		m.Read()
	}
	r.budget.Limit, r.budget.Calls = int64(calls), true
}

// readMicros reads an amount from its digits: a floating-point number would not be exact.
func readMicros(v document.Value) (switchboard.Micros, bool) {
	if v.Kind != document.KindInt && v.Kind != document.KindFloat {
		quotes := ""
		if v.Kind == document.KindText && v.Quoted {
			quotes = " without quotes"
		}
		v.Fault("want an amount%s, such as 10, 2.50 or 0.000001, not %s", quotes, v.Shown())
		return 0, false
	}
	m, err := switchboard.ParseMicros(v.Text)
	if err != nil {
		v.Fault("%s: %v", v.Shown(), err)
	}
	return m, err == nil
}

// microsType is the type of an amount.
func microsType(to *switchboard.Micros) document.Type {
	return document.Custom("an amount such as `0.02`", document.Schema{"type": "number", "minimum": 0}, func(v document.Value) { *to, _ = readMicros(v) })
}

func readPercentages(v document.Value) (all []int) {
	for _, t := range v.ReadTexts() {
		digits, ok := strings.CutSuffix(t.String, "%")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n < 1 || n > 100 || strconv.Itoa(n) != digits {
			t.Fault("%s: write a percentage from 1%% to 100%%, such as 80%%", t.Shown())
			continue
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

// zones are the time zones that have been loaded, by name. One zone is one value, so that configurations can be compared.
var zones sync.Map

// readZone returns the time zone of that name.
func readZone(v document.Value, name string) *time.Location {
	if z, ok := zones.Load(name); ok {
		return z.(*time.Location) //nolint:forcetypeassert // only zones are stored
	}
	z, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		v.Fault("%s is no time zone here; write a name of the IANA database, such as Europe/Berlin or UTC", v.Shown())
		return nil
	}
	known, _ := zones.LoadOrStore(name, z)
	return known.(*time.Location) //nolint:forcetypeassert // only zones are stored
}

// matchKeys are the keys of the calls that a budget counts.
func (r *budgetReader) matchKeys() *document.Keys {
	m := &r.budget.Match
	list := func(text string, one func(t document.TextValue)) document.Type {
		return document.Texts(text, nil).With(func(v document.Value) {
			if v.Kind == document.KindList && len(v.Items) == 0 {
				v.Fault("the list is empty, so that no call would count; fill it, or remove the key")
			}
			for _, t := range v.ReadTexts() {
				one(t)
			}
		})
	}
	return &document.Keys{
		Rows: []document.Row{
			{Key: "server", Type: list("a list of servers", func(t document.TextValue) {
				if len(r.matchServers(t.Value, t.String, r.servers)) > 0 {
					m.Servers = append(m.Servers, t.String)
				}
			}), Doc: "Servers; * matches any text."},
			{Key: "tool", Type: list("a list of tools", r.readTool), Doc: "Tools, server/tool, in which * matches any text."},
			{Key: "class", Type: list("a list of classes", r.readClass), Doc: "Classes of servers."},
			{Key: "verb", Type: list("a list of verbs", func(t document.TextValue) {
				if s, ok := t.OneOf("verb", textsOf(switchboard.Verbs)...); ok {
					m.Verbs = append(m.Verbs, switchboard.Verb(s))
				}
			}), Doc: "Verbs of the tool's capabilities. With `resource`, one capability must fit both."},
			{Key: "resource", Type: list("a list of resources", func(t document.TextValue) { m.Resources = append(m.Resources, r.readResource(t.Value)) }), Doc: "Resources of the tool's capabilities, with all that are below them."},
			{Key: "capability", Type: list("a list of capabilities", func(t document.TextValue) {
				switch {
				case !capability.IsID(t.String):
					t.Fault("%s is no id of a capability; a budget counts all its versions, so write the id alone, such as io.fs.read", t.Shown())
				case isCapability(r.loader, t.Value, t.String):
					m.Capabilities = append(m.Capabilities, t.String)
				}
			}), Doc: "Ids of named capabilities: the calls of tools that provide them, under the contract's names."},
			{Key: "cost_class", Type: list("a list of cost classes", func(t document.TextValue) {
				if s, ok := t.OneOf("cost_class value", textsOf(switchboard.CostClasses)...); ok {
					m.CostClasses = append(m.CostClasses, switchboard.CostClass(s))
				}
			}), Doc: "Cost classes of tools: `free`, `metered`, `paid`. A tool with a price and without a class is `metered`."},
		},
		Later: []string{"side_effects", "risk_level", "constraint"},
		Hints: map[string]string{"servers": `write "server"`, "tools": `write "tool"`, "principal": "say per: principal", "task": "say per: task, or write the budget into the task"},
	}
}

func (r *budgetReader) readTool(t document.TextValue) {
	server, name, ok := strings.Cut(t.String, "/")
	switch {
	case !ok || server == "" || name == "":
		t.Fault("%s: want the form server/tool, in which * stands for any text", t.Shown())
	case badPattern(name) != "":
		t.Fault("%s: %s", t.Shown(), badPattern(name))
	case len(r.matchServers(t.Value, server, r.servers)) > 0:
		r.budget.Match.Tools = append(r.budget.Match.Tools, t.String)
	}
}

func (r *budgetReader) readClass(t document.TextValue) {
	classes := map[string]bool{}
	for _, id := range r.servers {
		if s := r.loader.servers[id]; s != nil && s.Class != "" {
			classes[s.Class] = true
		}
	}
	if known := slices.Sorted(maps.Keys(classes)); r.readable && !slices.Contains(known, t.String) {
		t.Fault("%s is the class of no server here%s", t.Shown(), document.Suggestion(t.String, "classes", known))
	}
	r.budget.Match.Classes = append(r.budget.Match.Classes, t.String)
}

// priceKeys are the keys of a tool's price.
func (t *toolReader) priceKeys(p *switchboard.Price) *document.Keys {
	return &document.Keys{
		Rows: []document.Row{
			{Key: "call", Type: microsType(&p.Call), Doc: "What each call costs; 0 if absent."},
			{
				Key: "each", Type: document.Custom("a map from JSON Pointer to amount", document.Schema{"type": "object", "additionalProperties": document.Schema{"type": "number", "minimum": 0}, "propertyNames": document.Schema{"pattern": "^/"}}, func(v document.Value) { p.Each = readElementPrices(v) }),
				Doc: "What each element of a list in the arguments costs in addition. The pointer, such as `/texts`, leads to the list. Where no list is, there are no elements; where something else is, the call is refused.",
			},
			{Key: "most", Type: microsType(&p.Most), Doc: "The most that one call may cost. A call with a higher price is refused."},
			{Key: "reported", Type: document.Bool(&p.Reported), Doc: "`true`: the server states the cost of each call in its result, from 0 to `most`, and that is what counts. Only in the operator's overlays."},
		},
		Hints: map[string]string{"amount": `write "call"`, "per_call": `write "call"`, "max": `write "most"`, "currency": "it stands once in switchboard.yaml, for all prices"},
	}
}

func readElementPrices(v document.Value) (all []switchboard.ElementPrice) {
	for _, e := range v.ReadNamed(maxElementPrices, false) {
		if !strings.HasPrefix(e.Name, "/") || strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(e.Name), "~") {
			e.Key.Fault("%s: want a JSON Pointer into the arguments, such as /texts", document.Shown(e.Name))
			continue
		}
		if m, ok := readMicros(e.Value); ok {
			all = append(all, switchboard.ElementPrice{Pointer: e.Name, Micros: m})
		}
	}
	slices.SortFunc(all, func(a, b switchboard.ElementPrice) int { return strings.Compare(a.Pointer, b.Pointer) })
	return all
}

// maxElementPrices limits the lists that make a price.
const maxElementPrices = 16

// readPrice reads the price of a tool.
func (t *toolReader) readPrice(v document.Value) {
	p := &switchboard.Price{}
	m, ok := v.Open(t.priceKeys(p))
	if !ok {
		return
	}
	m.Read()
	t.overlay.Price = p
	at := func(key string) document.Value {
		if at, ok := m.Lookup(key); ok {
			return at
		}
		return v
	}
	switch {
	case len(v.Pairs) == 0:
		v.Fault("the price is empty; write what a call costs, such as {call: 0.001}, or remove the key")
	case p.Reported && t.source == switchboard.FromTenantOverlay:
		at("reported").Fault("only the operator's overlays may let a server state its costs; remove it")
	case p.Reported && p.Most == 0 && !m.Mistyped["most"]:
		at("reported").Fault(`the server states the cost of a call, so that the most is held before; add "most"`)
	case p.Most > 0 && p.Call > p.Most:
		at("most").Fault("each call costs %v, and so more than the most, %v: no call would be sent", p.Call, p.Most)
	}
	t.checkRaised(v)
}

// checkRaised reports a fault if a tenant's price is lower than the operator's.
func (t *toolReader) checkRaised(v document.Value) {
	operator := t.cfg.Overlays[t.id].Price
	if t.source != switchboard.FromTenantOverlay || operator == nil {
		return
	}
	own := t.overlay.Price
	lower := own.Call < operator.Call || own.Most > 0 && own.Most < operator.Most
	for _, e := range operator.Each {
		i := slices.IndexFunc(own.Each, func(o switchboard.ElementPrice) bool { return o.Pointer == e.Pointer })
		lower = lower || i < 0 || own.Each[i].Micros < e.Micros
	}
	if lower {
		v.Fault("the operator's price is higher, and a tenant may only raise it; state each part of it, at least as high, or remove the price")
	}
}

// readCostClass reads how calls of a tool are paid for. A tenant may only state a class that costs more.
func (t *toolReader) readCostClass(v document.Value) {
	s, ok := v.OneOf("cost_class value", textsOf(switchboard.CostClasses)...)
	if !ok {
		return
	}
	is, operator := switchboard.CostClass(s), t.cfg.Overlays[t.id].Contract.CostClass
	if t.source == switchboard.FromTenantOverlay && slices.Index(switchboard.CostClasses, is) < slices.Index(switchboard.CostClasses, operator) {
		v.Fault("%s is less than what the operator says, %q; a tenant may only say that a tool costs more", v.Shown(), operator)
	}
	t.overlay.Contract.CostClass = is
}

// readOwnBudget reads the budget of the tool alone.
func (t *toolReader) readOwnBudget(v document.Value) {
	if t.source == switchboard.FromTenantOverlay {
		v.Fault("only the operator's overlays may give a tool its own budget; write it into the tenant's budgets, with match: {tool: [%s]}", t.id)
		return
	}
	r := &budgetReader{loader: t.loader, owner: switchboard.BudgetOwner("tool/" + t.id.String())}
	r.budget = &switchboard.Budget{ID: ownBudget, Owner: r.owner, Position: fmt.Sprintf("%s:%d:%d", v.File, v.Line, v.Column)}
	if m, ok := v.Open(r.ownKeys()); ok {
		m.Read()
		t.overlay.Budget = r.budget
	}
}

// checkCosts reports what the statements about a tool's costs contradict.
func (t *toolReader) checkCosts(m document.FixedMap) {
	o := &t.overlay
	if v, ok := m.Lookup("cost_per_call"); ok && m.HasKey("price") {
		v.Context = m.Context
		v.Fault(`"price" says what a call costs; remove one of the two`)
	}
	if v, ok := m.Lookup("cost_class"); ok && o.Contract.CostClass == switchboard.CostFree && o.Price != nil && !o.Price.Free() {
		v.Context = m.Context
		v.Fault("the tool is said to be free, and also to have a price; only one can be true")
	}
}

// currencyType is the type of the code of a currency.
func currencyType(to *string) document.Type {
	return document.Text("the code of a currency", func(v document.Value, s string) {
		if len(s) != 3 || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			v.Fault("%s: want the code of a currency, three capital letters such as EUR", v.Shown())
		}
		*to = s
	})
}

// readOperatorBudgets reads the operator's budgets for all tenants, and those in the rows of tenants. The taxonomy must be known.
func (l *loader) readOperatorBudgets() {
	if l.budgetRows.Sink != nil {
		l.budgets = l.readBudgets(l.budgetRows, switchboard.OwnerOperator, l.serverIDs)
	}
	for _, id := range slices.Sorted(maps.Keys(l.bounds)) {
		if b := l.bounds[id]; b.budgetRows.Sink != nil {
			b.budgets = l.readBudgets(b.budgetRows, switchboard.OwnerRow, b.servers)
		}
	}
}
