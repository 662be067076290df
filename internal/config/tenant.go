package config

import (
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var (
	boundShape = &shape{
		keys:  []string{"servers", "allow", "tier", "roles", "token_budget", "result_bytes", "declare", "trust"},
		later: []string{"budgets", "models", "permissions"},
		hints: map[string]string{"ranking": "it stands in tenants/<id>/tenant.yaml", "keys": "they stand in tenants/<id>/tenant.yaml", "default_task": "it stands in tenants/<id>/tenant.yaml", "mode": "it stands in tenants/<id>/tenant.yaml", "policy": "it stands in tenants/<id>/tenant.yaml", "lazy": "it stands in tenants/<id>/tenant.yaml, and for all tenants at the top", "tiers": `write "tier"`},
	}
	tenantShape = &shape{
		keys:  []string{"tenant", "servers", "mode", "default_task", "ranking", "limits", "policy", "record", "receipt_ids", "keys", "token_budget", "result_bytes", "lazy"},
		later: []string{"budgets", "obligations", "approvals", "cache", "redact"},
		hints: map[string]string{"allow": operators, "declare": operators, "trust": operators + "; what a tenant asks of trust stands under policy: trust", "tasks": "they stand in tenants/<id>/tasks/", "id": `write "tenant"`, "policies": "they stand in tenants/<id>/policies/", "roles": "the operator says it, in switchboard.yaml; a key names its own", "tier": "the operator says it, in switchboard.yaml; a key names its own"},
	}
	tenantLazyShape = &shape{keys: []string{"on_full"}, hints: map[string]string{"tokenizer": operators}}
	declareShape    = &shape{keys: []string{"verb", "resource", "constraints"}, later: []string{"capability"}, hints: map[string]string{"tools": "a task that a client declares names no tools"}}

	keyShape = &shape{
		keys:  []string{"id", "hash", "tasks", "roles", "tier", "mode", "expires"},
		later: []string{"next"},
		hints: map[string]string{"key": "write the hash of the key, as `switchboard key new` prints it; the key itself stands in no file", "principal": `write "id"`},
	}
	limitShape = &shape{keys: []string{"match", "rate", "burst"}, later: []string{"limit", "window", "currency"}}
	matchShape = &shape{keys: []string{"constraint"}, later: []string{"cost_class", "side_effects", "risk_level", "verb", "resource", "server", "tool", "capability"}}
)

const operators = "only the operator says it, in switchboard.yaml"

// A bound is what the operator lets a tenant have at most.
type bound struct {
	servers []string // sorted
	byName  bool
	trust   switchboard.Trust
	tiers   []string // the first is that of keys which name none
	roles   []string // sorted
	tokens  int      // 0 where the operator says none

	resultBytes int   // 0 where the operator says none
	declare     value // read once the taxonomy is
	ceiling     []switchboard.Requirement

	// unknown says that the operator's row could not be read, so that nothing
	// is more than it allows.
	unknown bool
}

// tier is what a principal has that names none.
func (b *bound) tier() string {
	if len(b.tiers) == 0 {
		return ""
	}
	return b.tiers[0]
}

// tenant is the state of reading one tenant's folder.
type tenant struct {
	part    *partState
	bound   *bound
	tasks   map[string]value
	tools   map[switchboard.ToolID]value
	servers []string // out.Servers

	tenantReading
	keysUnknown bool // the file may have keys that could not be read
}

// readBounds reads tenants: of switchboard.yaml.
func (l *loader) readBounds(v value) {
	for _, e := range v.entries(maxTenants, true) {
		if err := switchboard.CheckID(e.name); err != nil {
			e.key.fault("%v", err)
			continue
		}
		b := &bound{}
		l.bounds[e.name] = b
		o, ok := e.val.about("tenant %q: ", e.name).object(boundShape)
		if !ok {
			continue
		}
		o.line, o.col = e.key.line, e.key.col
		if v, ok := o.need("servers", `name the servers that it may use at most; servers: ["*"] for all`); ok {
			b.servers = l.some(v, l.ids)
		}
		if v, ok := o.get("allow"); ok {
			for _, t := range v.texts() {
				if s, ok := t.one("permission", "by_name"); ok {
					b.byName = b.byName || s == "by_name"
				}
			}
		}
		if v, ok := o.get("trust"); ok {
			s, _ := v.one("trust", string(switchboard.TrustOperator), string(switchboard.TrustDeclared))
			b.trust = switchboard.Trust(s)
		}
		if v, ok := o.get("tier"); ok {
			b.tiers = v.tiers()
		}
		if v, ok := o.get("roles"); ok {
			b.roles = sorted(v.texts())
		}
		b.tokens = l.tokens
		if v, ok := o.get("token_budget"); ok {
			b.tokens = v.tokens(0, "")
		}
		if v, ok := o.get("result_bytes"); ok {
			b.resultBytes = v.resultBytes(0, "")
		}
		b.declare, _ = o.get("declare")
	}
}

// ceilings reads what clients of the tenants may declare at most.
func (l *loader) ceilings() {
	for _, id := range slices.Sorted(maps.Keys(l.bounds)) {
		b := l.bounds[id]
		if b.declare.sink == nil {
			continue
		}
		if b.declare.kind == listKind && len(b.declare.items) == 0 {
			b.declare.fault("the list is empty; name a capability, such as {verb: search, resource: internet}, or remove the key")
		}
		type term struct {
			verb     switchboard.Verb
			resource switchboard.Resource
		}
		first := map[term]value{}
		for _, v := range b.declare.list(maxItems) {
			r := l.declared(v)
			is := term{r.Verb, r.Resource}
			if at, ok := first[is]; ok && r.Resource != "" {
				v.fault("%s %s has a row already, at line %d; join them", r.Verb, r.Resource, at.line)
			}
			first[is] = v
			b.ceiling = append(b.ceiling, r)
		}
	}
}

func (l *loader) declared(v value) (r switchboard.Requirement) {
	o, ok := v.object(declareShape)
	if !ok {
		return r
	}
	const remedy = "a row is a verb and a resource, and constraints that each such requirement gets"
	if v, ok := o.need("verb", remedy); ok {
		r.Verb = v.verb()
	}
	if v, ok := o.need("resource", remedy); ok {
		r.Resource = l.resource(v)
	}
	if v, ok := o.get("constraints"); ok {
		r.Constraints = l.constraints(v)
	}
	return r
}

// maxBudget bounds a budget of tokens.
const maxBudget = 10_000_000

// tokens reads a budget of tokens, which is at most what the one above has, if
// that is not 0.
func (v value) tokens(most int, has string) int {
	n := v.integer(1, maxBudget)
	if most > 0 && n > most {
		v.fault("%d is more than the %d that %s; write less, or remove it", n, most, has)
		return most
	}
	return n
}

// resultBytes reads how many bytes of one result are given at once: at most what the one
// above has, if that is not 0.
func (v value) resultBytes(most int, has string) int {
	n := v.size(4<<10, 1<<30)
	if most > 0 && n > most {
		v.fault("%s is more than the %d KiB that %s; write less, or remove it", v.shown(), most>>10, has)
		return most
	}
	return n
}

// onFull reads what becomes of an expansion that the budget has no room for.
func (v value) onFull() switchboard.OnFull {
	s, _ := v.one("way", string(switchboard.OnFullRefuse), string(switchboard.OnFullCollapse))
	return switchboard.OnFull(s)
}

// some reads a list of servers, in which * stands for any text, out of known.
func (l *loader) some(v value, known []string) []string {
	var out []string
	for _, t := range v.texts() {
		out = append(out, l.matching(t.value, t.s, known)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// matching returns which of known a pattern means. One that means none is a
// fault.
func (l *loader) matching(v value, pattern string, known []string) []string {
	if !strings.Contains(pattern, "*") {
		if l.known(v, pattern, known) {
			return []string{pattern}
		}
		return nil
	}
	var out []string
	for _, k := range known {
		if switchboard.MatchPattern(pattern, k) {
			out = append(out, k)
		}
	}
	if len(out) == 0 && l.readable {
		v.fault("%s matches no server here; %s", shown(pattern), listed("servers", known))
	}
	return out
}

// tenants reads tenants/, and makes the tenants of it and of the operator's
// rows.
func (l *loader) tenants() {
	if l.exists("tenants") && !l.isFolder("tenants") {
		l.fault("tenants", "this must be a folder, with a folder for each tenant")
		return
	}
	names, ok := l.folder("tenants")
	if !ok {
		return
	}
	l.cfg.Implied = l.implicit && len(names) == 0
	if l.implicit {
		// Single-user use: the local tenant's row is implied.
		l.bounds[string(DefaultTenant)] = &bound{servers: l.ids, byName: true, tokens: l.tokens}
	}
	for id, b := range l.bounds {
		l.cfg.Tenants[switchboard.TenantID(id)] = &switchboard.Tenant{
			ID: switchboard.TenantID(id), ByName: b.byName, Servers: l.enabled(b.servers), Tier: b.tier(), Roles: b.roles,
			Tasks: map[switchboard.TaskID]*switchboard.Task{}, Overlays: map[switchboard.ToolID]switchboard.Overlay{},
			TokenBudget: b.tokens, ResultBytes: b.resultBytes, OnFull: l.onFull, Declare: b.ceiling, VetoForTask: l.vetoForTask, Trust: b.trust,
		}
	}
	if l.cfg.Implied {
		t := l.cfg.Tenants[DefaultTenant]
		t.Tasks[LocalTask], t.DefaultTask = localTask(), LocalTask
	} else if l.implicit && !slices.Contains(names, string(DefaultTenant)) {
		delete(l.cfg.Tenants, DefaultTenant)
	}
	for _, n := range names {
		folder := path.Join("tenants", n)
		if !l.isFolder(folder) {
			l.fault(folder, "only folders are read here, one for each tenant; move this file away")
			continue
		}
		if err := switchboard.CheckID(n); err != nil {
			l.fault(folder, "the folder cannot be that of a tenant: %v", err)
			continue
		}
		p := l.newPart("tenant "+n, switchboard.TenantID(n))
		leave := l.within(p)
		l.tenant(n, folder, p)
		leave()
	}
}

// enabled are those of the servers that are not switched off.
func (l *loader) enabled(names []string) []switchboard.ServerID {
	out := make([]switchboard.ServerID, 0, len(names))
	for _, n := range names {
		if !l.disabled[n] {
			out = append(out, switchboard.ServerID(n))
		}
	}
	return out
}

// localTask is every tool of every server, by name.
func localTask() *switchboard.Task {
	return &switchboard.Task{ID: LocalTask, Requirements: []switchboard.Requirement{{Tools: []string{"*/*"}}}}
}

// tenantFiles are what a tenant's folder may hold.
var tenantFiles = []string{"tenant.yaml", "tasks", "overlays", "policies"}

// tenant reads the folder of one tenant, which is a part of its own.
func (l *loader) tenant(id, folder string, p *partState) {
	b, ok := l.bounds[id]
	if !ok {
		b = &bound{unknown: true}
		if l.readable {
			l.fault(folder, "the tenant has nothing, since switchboard.yaml has no row for it; add tenants: {%s: {servers: [%s]}}%s", id, "…", rows(id, l.bounds))
			// Its other faults would be that it asks for more than nothing.
			b.servers, b.byName = l.ids, true
		}
	}
	t := &tenant{part: p, bound: b, servers: b.servers, tasks: map[string]value{}, tools: map[switchboard.ToolID]value{}}
	l.homes = append(l.homes, t)
	if t.out = l.cfg.Tenants[switchboard.TenantID(id)]; t.out == nil {
		t.out = &switchboard.Tenant{ID: switchboard.TenantID(id), Tasks: map[switchboard.TaskID]*switchboard.Task{}, Overlays: map[switchboard.ToolID]switchboard.Overlay{}}
	}
	t.keysUnknown = true // until its file is read
	defer l.enter(folder)()
	names, _ := l.folder(folder)
	for _, n := range names {
		if !slices.Contains(tenantFiles, n) {
			l.fault(path.Join(folder, n), "this is not read%s", instead(n, "names", tenantFiles))
		}
	}
	t.policies = l.policies(path.Join(folder, "policies"))
	l.checkPolicies(t)

	// The file first, for what it narrows; its references to tasks after them.
	var top object
	file := path.Join(folder, "tenant.yaml")
	t.keysUnknown = l.exists(file)
	if t.keysUnknown {
		if doc, ok := l.document(file); ok {
			top, ok = doc.object(tenantShape)
			t.keysUnknown = !ok || top.has("keys")
		}
	}
	if v, ok := top.get("tenant"); ok {
		if s, ok := v.str(); ok && s != id {
			v.fault("%s stands in the folder of %q; they must be the same", v.shown(), id)
		}
	}
	if v, ok := top.get("servers"); ok {
		t.servers = l.narrowed(v, b)
		t.out.Servers = l.enabled(t.servers)
	}
	if v, ok := top.get("mode"); ok {
		t.out.Mode = v.mode("")
	}
	if v, ok := top.get("policy"); ok {
		t.out.Policy = v.json()
	}
	if v, ok := top.get("record"); ok {
		_, t.out.RecordInputs = v.one("kind of record", "policy_inputs")
	}
	if v, ok := top.get("receipt_ids"); ok {
		t.out.ReceiptIDs = v.boolean()
	}
	if v, ok := top.get("token_budget"); ok {
		t.out.TokenBudget = v.tokens(t.out.TokenBudget, "the operator gives this tenant")
	}
	if v, ok := top.get("result_bytes"); ok {
		t.out.ResultBytes = v.resultBytes(t.out.ResultBytes, "the operator gives this tenant")
	}
	if v, ok := top.get("lazy"); ok {
		if o, ok := v.object(tenantLazyShape); ok {
			if v, ok := o.get("on_full"); ok {
				t.out.OnFull = v.onFull()
			}
		}
	}
	for _, doc := range l.documents(path.Join(folder, "tasks")) {
		l.task(doc, t)
	}
	for _, doc := range l.documents(path.Join(folder, "overlays")) {
		l.overlay(doc, switchboard.FromTenantOverlay, t.servers, t.tools, t.out.Overlays)
	}
	if v, ok := top.get("default_task"); ok {
		t.out.DefaultTask = l.taskName(v, t)
	}
	if v, ok := top.get("ranking"); ok {
		t.out.Ranking = l.ranking(v, t)
	}
	if v, ok := top.get("limits"); ok {
		t.out.Limits = l.limits(v)
	}
	if v, ok := top.get("keys"); ok {
		l.keys(v, t)
	}
}

func rows(id string, bounds map[string]*bound) string {
	known := make([]string, 0, len(bounds))
	for k := range bounds {
		known = append(known, k)
	}
	slices.Sort(known)
	if near := nearest(id, known); near != "" {
		return fmt.Sprintf(", or is it %q?", near)
	}
	return ""
}

// narrowed reads the servers that a tenant chooses out of its bound.
func (l *loader) narrowed(v value, b *bound) []string {
	var out []string
	for _, t := range v.texts() {
		if !strings.Contains(t.s, "*") && l.readable && !slices.Contains(b.servers, t.s) {
			t.fault("%s is not among the servers that the operator allows this tenant%s", t.shown(), instead(t.s, "servers", b.servers))
			continue
		}
		out = append(out, l.matching(t.value, t.s, b.servers)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// taskName reads the name of one of the tenant's tasks.
func (l *loader) taskName(v value, t *tenant) switchboard.TaskID {
	s, ok := v.str()
	if _, known := t.tasks[s]; ok && !known {
		names := make([]string, 0, len(t.tasks))
		for n := range t.tasks {
			names = append(names, n)
		}
		slices.Sort(names)
		v.fault("the tenant has no task %s%s", v.shown(), instead(s, "tasks", names))
	}
	return switchboard.TaskID(s)
}

// limits reads how often a tenant may call.
func (l *loader) limits(v value) []switchboard.Limit {
	var out []switchboard.Limit
	first := map[switchboard.Constraint]value{}
	for _, item := range v.list(maxItems) {
		o, ok := item.object(limitShape)
		if !ok {
			continue
		}
		limit := switchboard.Limit{Burst: 1}
		if v, ok := o.need("match", "say which calls are counted: match: {constraint: rate_limited}"); ok {
			if m, ok := v.object(matchShape); ok {
				if v, ok := m.need("constraint", "name the constraint of the tools that are counted"); ok {
					limit.Constraint = l.constraint(v)
					if at, ok := first[limit.Constraint]; ok {
						v.fault("%s has a limit already, at line %d", v.shown(), at.line)
					}
					first[limit.Constraint] = v
				}
			}
		}
		if v, ok := o.need("rate", "write a number of calls in a time, such as 60/min"); ok {
			limit.Every = v.rate()
		}
		if v, ok := o.get("burst"); ok {
			limit.Burst = v.integer(1, 1_000_000)
			if most := switchboard.MaxEarn / max(limit.Every, 1); limit.Burst > int(most) {
				v.fault("so many calls take more than ten years to be earned at that rate; at most %d", most)
			}
		}
		out = append(out, limit)
	}
	return out
}

var rateUnits = map[string]time.Duration{"s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

// rate reads "60/min" and returns the time in which one call is earned.
func (v value) rate() time.Duration {
	s, ok := v.str()
	if !ok {
		return 0
	}
	count, unit, _ := strings.Cut(s, "/")
	n, err := strconv.Atoi(count)
	if per := rateUnits[unit]; err == nil && strconv.Itoa(n) == count && n >= 1 && n <= 1_000_000 && per > 0 {
		return per / time.Duration(n)
	}
	v.fault("%s is no rate; write a number of calls in a time (s, min, h or d), such as 60/min", v.shown())
	return 0
}

// keys reads the hashes of a tenant's API keys.
func (l *loader) keys(v value, t *tenant) {
	seen := map[string]value{}
	for _, item := range v.list(maxItems) {
		o, ok := item.object(keyShape)
		if !ok {
			continue
		}
		k := Key{Tenant: t.out.ID}
		if v, ok := o.need("id", "name who calls with the key"); ok {
			if s, ok := v.str(); ok {
				k.ID = s
				if err := switchboard.CheckID(s); err != nil {
					v.fault("%v", err)
				} else if s == switchboard.LocalID {
					v.fault("%s is whoever calls without a key, over stdio or while there are none; name the key otherwise", v.shown())
				} else if at, ok := seen[s]; ok {
					v.fault("%s is the id of another key, at line %d", v.shown(), at.line)
				}
				seen[s] = v
			}
		}
		if v, ok := o.need("hash", "make a key with `switchboard key new`, which prints its hash"); ok {
			v.hidden = true
			if h, ok := v.hash(); ok && l.ownKey(h, v, t) {
				k.Hash = h
			}
		}
		if v, ok := o.get("tasks"); ok {
			for _, task := range v.texts() {
				k.Tasks = append(k.Tasks, l.taskName(task.value, t))
			}
		}
		if v, ok := o.get("roles"); ok {
			var own []text
			for _, role := range v.texts() {
				if t.bound.gives(role.value, role.s, "role", t.bound.roles) {
					own = append(own, role)
				}
			}
			k.Roles = sorted(own)
		}
		k.Tier = t.bound.tier()
		if v, ok := o.get("tier"); ok {
			if s, ok := v.str(); ok && t.bound.gives(v, s, "tier", t.bound.tiers) {
				k.Tier = s
			}
		}
		k.Mode = t.out.Mode.Narrower(switchboard.Autopilot)
		if v, ok := o.get("mode"); ok {
			k.Mode = v.mode(k.Mode)
		}
		if v, ok := o.get("expires"); ok {
			k.Expires = v.end()
		}
		if k.ID != "" && k.Hash != ([32]byte{}) {
			t.keys = append(t.keys, k) // also where the rest is faulty, so that its caller learns that
		}
	}
}

// ParseEnd reads when a key ends: "2027-03-31" is its last day, in UTC, and
// "2027-03-31T18:00:00Z" the time of its end.
func ParseEnd(s string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	return time.Parse(time.RFC3339, s)
}

// end returns when the key ends. What cannot be read has ended long ago, so that
// a slip gives nobody more time.
func (v value) end() time.Time {
	s, ok := v.str()
	if !ok {
		return time.Unix(0, 0)
	}
	end, err := ParseEnd(s)
	if err != nil {
		v.fault("want the last day, such as 2027-03-31, or a time, such as 2027-03-31T18:00:00Z, not %s", v.shown())
		return time.Unix(0, 0)
	}
	if !time.Now().Before(end) {
		v.warn("the key has expired; remove it, or give it another day")
	}
	return end
}

// gives reports whether a tenant has something of the operator, and makes it a
// fault if not.
func (b *bound) gives(v value, s, noun string, given []string) bool {
	if b.unknown || slices.Contains(given, s) {
		return true
	}
	v.fault("%s is not among the %ss that the operator gives this tenant%s", v.shown(), noun, instead(s, noun+"s", given))
	return false
}

// tiers reads one tier or a list of them.
func (v value) tiers() []string {
	if v.kind != listKind {
		s, _ := v.str()
		return []string{s}
	}
	if len(v.items) == 0 {
		v.fault("the list is empty; name a tier, or remove the key")
	}
	var out []string
	for _, t := range v.texts() {
		out = append(out, t.s)
	}
	return out
}

func sorted(texts []text) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = t.s
	}
	slices.Sort(out)
	return out
}

// mode reads how much agents may do alone, which is at most what is said above
// it.
func (v value) mode(most switchboard.Mode) switchboard.Mode {
	known := make([]string, len(switchboard.Modes))
	for i, m := range switchboard.Modes {
		known[i] = string(m)
	}
	s, ok := v.one("mode", known...)
	if !ok {
		return most
	}
	m := switchboard.Mode(s)
	if m.Narrower(most) != m {
		v.fault("%s lets agents do more than the tenant's mode, %q; a key or a task may only let them do less", v.shown(), most)
	}
	return m
}

func (v value) hash() (h [32]byte, ok bool) {
	s, ok := v.str()
	if !ok {
		return h, false
	}
	digits, ok := strings.CutPrefix(s, "sha256:")
	if raw, err := hex.DecodeString(digits); ok && err == nil && len(raw) == len(h) && digits == strings.ToLower(digits) {
		return [32]byte(raw), true
	}
	v.fault(`this is no hash of a key; write "sha256:" and 64 hexadecimal digits, as "switchboard key new" prints them, and never the key itself`)
	return h, false
}
