package config

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of atoms and boundaries.
const (
	maxBoundaryPattern = 512    // bytes
	maxPatternProgram  = 10_000 // instructions
	minProbeInterval   = time.Second
	maxProbeInterval   = 366 * 24 * time.Hour
)

// accountPattern is the form of the name of an account, which has at most maxAccount bytes.
var accountPattern = regexp.MustCompile(`^[a-z0-9_]+$`)

const maxAccount = 64

// boundaryReader is the state of reading one row of boundaries.yaml.
type boundaryReader struct {
	*registryReader
	row capability.Boundary
}

// keys are the keys of a boundary.
func (r *boundaryReader) keys() *document.Keys {
	b := &r.row
	return &document.Keys{
		Rows: []document.Row{
			{Key: "id", Type: document.Text("a term", func(v document.Value, s string) {
				if isTerm(v, s) {
					b.ID = s
				}
			}), Required: "name the row", Doc: "The name of the row in verdicts and refusals."},
			{Key: "severity", Type: document.OneOf("severity value", func(s string) { b.Severity = capability.Severity(s) }, string(capability.Hard), string(capability.Soft)), Required: "write hard, or soft for a row that only warns", Doc: "`hard` rows decide; `soft` rows only warn."},
			{Key: "side_effects_any", Type: clause(r.sideEffectsType(&b.SideEffectsAny)), Doc: "Clause: the capability has one of these side effects."},
			{Key: "cost_class", Type: oneOrMore("cost_class value", func(all []string) {
				for _, s := range all {
					b.CostClasses = append(b.CostClasses, switchboard.CostClass(s))
				}
			}, textsOf(switchboard.CostClasses)...), Doc: "Clause: the capability has this cost class, or one of the list."},
			{Key: "risk_level", Type: oneOrMore("risk_level value", func(all []string) { b.RiskLevels = all }, capability.RiskLevels...), Doc: "Clause: the capability has this risk level, or one of the list."},
			{Key: "id_matches", Type: document.Text("a regular expression", func(v document.Value, s string) {
				if isWholePattern(v, s) {
					b.IDMatches = s
				}
			}), Doc: "Clause: the regular expression (RE2) matches the whole id of the capability."},
			{Key: "exceptions", Type: document.Texts("a list of capabilities", r.readExceptions), Doc: "Ids of capabilities that skip this row, and no other one."},
			{Key: "decision", Type: document.Custom("`deny`, `require_approval`, `advise` or `deny_unless_account:NAME`", document.Schema{"type": "string", "pattern": `^(deny|require_approval|advise|deny_unless_account:[a-z0-9_]{1,64})$`}, r.readDecision), Required: "write deny, require_approval, advise or deny_unless_account:NAME", Doc: "What the row decides. The last one denies unless the capability requires an account of NAME."},
			{Key: "who", Type: document.Texts("a list of who is asked", nil).With(func(v document.Value) { b.Who = readWho(v) }), Doc: "Who is asked, with `require_approval`."},
		},
		Hints: map[string]string{
			"side_effects": `write "side_effects_any"`, "id_match": `write "id_matches"`, "exception": `write "exceptions"`, "except": `write "exceptions"`,
			"capability": `write "id_matches"`, "approvers": `write "who"`, "name": `write "id"`,
		},
	}
}

// clauseKeys are the keys of clauses.
var clauseKeys = []string{"side_effects_any", "cost_class", "risk_level", "id_matches"}

// clause returns the type with a fault for an empty list, with which a row could never fire.
func clause(t document.Type) document.Type {
	return t.Wrap(func(v document.Value) bool {
		if v.Kind == document.KindList && len(v.Items) == 0 {
			v.Fault("the list is empty, so that the row would never fire; fill it, or remove the key")
			return false
		}
		return true
	})
}

// oneOrMore is one of the known texts, or a list of them.
func oneOrMore(noun string, set func(all []string), known ...string) document.Type {
	one := document.Schema{"enum": known}
	return clause(document.Custom("one of `"+strings.Join(known, "`, `")+"`, or a list of them", document.Schema{"oneOf": []document.Schema{one, {"type": "array", "items": one, "minItems": 1, "uniqueItems": true}}}, func(v document.Value) {
		var all []string
		if v.Kind == document.KindList {
			for _, t := range v.ReadTexts() {
				if s, ok := t.OneOf(noun, known...); ok {
					all = append(all, s)
				}
			}
		} else if s, ok := v.OneOf(noun, known...); ok {
			all = []string{s}
		}
		slices.Sort(all)
		set(all)
	}))
}

// isWholePattern reports whether s is a regular expression that is cheap enough. If not, that is a fault.
func isWholePattern(v document.Value, s string) bool {
	if len(s) > maxBoundaryPattern {
		v.Fault("the pattern is %d bytes long; at most %d are allowed", len(s), maxBoundaryPattern)
		return false
	}
	parsed, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		v.Fault("%s is no regular expression (RE2): %v", v.Shown(), err)
		return false
	}
	if program, err := syntax.Compile(parsed.Simplify()); err != nil || len(program.Inst) > maxPatternProgram {
		v.Fault("%s would take too long to match; write fewer repetitions", v.Shown())
		return false
	}
	if strings.HasPrefix(s, "^") || strings.HasSuffix(s, "$") {
		v.Warn("the pattern matches the whole id anyway; leave out ^ and $")
	}
	return true
}

func (r *boundaryReader) readExceptions(texts []document.TextValue) {
	for _, t := range texts {
		if !capability.IsID(t.String) {
			t.Fault("%s is no id of a capability; an exception is a whole id, without version, such as io.fs.read", t.Shown())
			continue
		}
		r.row.Exceptions = append(r.row.Exceptions, t.String)
		r.exceptions = append(r.exceptions, t)
	}
	slices.Sort(r.row.Exceptions)
}

func (r *boundaryReader) readDecision(v document.Value) {
	s, ok := v.ReadText()
	if !ok {
		return
	}
	d := capability.RowDecision(s)
	known := []string{string(capability.Deny), string(capability.RequireApproval), string(capability.Advise), string(capability.DenyUnlessAccount)}
	switch name, cut := strings.CutPrefix(s, known[3]); {
	case cut && (len(name) > maxAccount || !accountPattern.MatchString(name)):
		v.Fault("%s: after deny_unless_account: comes the name of the account, of small letters, digits and _, such as deny_unless_account:brian", v.Shown())
	case !cut && !slices.Contains(known[:3], s):
		v.Fault("%s is no decision%s", v.Shown(), document.Suggestion(s, "decisions", append(known[:3:3], known[3]+"NAME")))
	default:
		r.row.Decision = d
	}
}

// readBoundaries reads the rows of boundaries.yaml.
func (r *registryReader) readBoundaries(doc document.Value) {
	first := map[string]document.Value{}
	for _, item := range doc.ReadList(document.MaxItems) {
		q := &boundaryReader{registryReader: r, row: capability.Boundary{File: item.File, Line: item.Line}}
		m, ok := item.Open(q.keys())
		if !ok {
			continue
		}
		m.Read()
		b := &q.row
		if at, ok := first[b.ID]; ok && b.ID != "" {
			item.Fault("boundary %q stands here twice, first at line %d", b.ID, at.Line)
		}
		first[b.ID] = item
		mistyped := slices.ContainsFunc(clauseKeys, func(k string) bool { return m.Mistyped[k] })
		if !slices.ContainsFunc(clauseKeys, m.HasKey) && !mistyped {
			m.Fault("the row has no clause, so it is not certain what it is for; add one of %s", strings.Join(clauseKeys, ", "))
		}
		if who, ok := m.Lookup("who"); ok && b.Decision != "" && b.Decision != capability.RequireApproval {
			who.Fault("%s asks nobody; write decision: require_approval, or remove the key", b.Decision)
		}
		if b.Decision == capability.RequireApproval {
			m.Require("who", "say who is asked, such as who: [finance]")
		}
		r.rows = append(r.rows, *b)
	}
}

// partyKeys are the keys of a row of parties.yaml.
func (r *registryReader) partyKeys(p *capability.Party) *document.Keys {
	atom := func(to *string) document.Type {
		return document.Text("an atom", func(v document.Value, s string) { *to = r.checkAtom(v, s) })
	}
	return &document.Keys{Rows: []document.Row{
		{Key: "from_party", Type: atom(&p.From), Required: "name the atom of the party that acts", Doc: "The party that acts: an atom."},
		{Key: "to_party", Type: atom(&p.To), Required: "name the atom of the party that it acts for", Doc: "The party that it acts for: an atom."},
		{Key: "scope_account", Type: atom(&p.Account), Required: "name the atom of the account", Doc: "The account that it uses: an atom."},
	}}
}

func (r *registryReader) readParties(doc document.Value) {
	for _, item := range doc.ReadList(document.MaxItems) {
		p := capability.Party{Position: fmt.Sprintf("%s:%d:%d", item.File, item.Line, item.Column)}
		if m, ok := item.Open(r.partyKeys(&p)); ok {
			m.Read()
			r.parties = append(r.parties, p)
		}
	}
}

// atomReader is the state of reading one atom.
type atomReader struct {
	*registryReader
	atom *capability.Atom
}

// keys are the keys of an atom.
func (r *atomReader) keys() *document.Keys {
	a := r.atom
	return &document.Keys{
		Rows: []document.Row{
			{Key: "kind", Type: document.OneOf("kind", func(s string) { a.Kind = s }, capability.Kinds...), Required: "say what it is, such as account", Doc: "What the atom is."},
			{Key: "critical", Type: document.Bool(&a.Critical), Doc: "`true`: it must have a probe."},
			{Key: "fresh_for", Type: document.Duration(minProbeInterval, maxProbeInterval, &a.FreshFor), Doc: "How long a good result of the probe counts; twice `every` if absent."},
			{Key: "every", Type: document.Duration(minProbeInterval, maxProbeInterval, &a.Every), Doc: "How often it is probed. If absent, only when it is needed."},
			{Key: "probe", Type: document.Map(r.probeKeys, r.checkProbe), Doc: "How Switchboard finds out whether it is well. Exactly one of `server`, `tool`, `http`, `tcp`, `env`, `file`, `oauth`."},
		},
		Hints: map[string]string{"id": "the id stands before the colon", "ttl": `write "fresh_for"`, "interval": `write "every"`, "health": `write "probe"`},
	}
}

// probeKeys are the keys of a probe. There is exactly one of probeKinds.
var (
	probeKinds = []string{"server", "tool", "http", "tcp", "env", "file", "oauth"}
	probeKeys  = append(slices.Clone(probeKinds), "headers", "arguments", "is")
)

// probeKeys are the keys of a probe.
func (r *atomReader) probeKeys() *document.Keys {
	p := &r.atom.Probe
	const noCommand = "a probe runs no command; write a server whose tool does it, and probe the tool"
	return &document.Keys{
		Rows: []document.Row{
			{Key: "server", Type: document.Text("a server", func(v document.Value, s string) {
				if r.checkServer(v, s, r.serverIDs) {
					p.Server = switchboard.ServerID(s)
				}
			}), Doc: "Well when the health of the server says so."},
			{Key: "tool", Type: document.Text("a tool, as server/tool", func(v document.Value, s string) {
				id, err := switchboard.ParseToolID(s)
				switch {
				case err != nil:
					v.Fault("%s: want the form server/tool, such as shop/whoami", v.Shown())
				case badToolName(id.Name) != "":
					v.Fault("%s: %s", v.Shown(), badToolName(id.Name))
				case r.checkServer(v, string(id.Server), r.serverIDs):
					p.Tool = id
				}
			}), Doc: "Well when the tool, which must be readonly by the operator's word, answers without error."},
			{Key: "http", Type: document.Custom("an address", document.Schema{"type": "string", "minLength": 1}, func(v document.Value) { p.HTTP = readURL(v) }), Doc: "Well when GET of the `http://` or `https://` address answers 200 to 299. Redirects are not followed."},
			{Key: "tcp", Type: document.Text("`HOST:PORT`", func(v document.Value, s string) {
				host, port, err := net.SplitHostPort(s)
				if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
					v.Fault("%s: want HOST:PORT, such as db.example.com:5432", v.Shown())
					return
				}
				p.TCP = s
			}), Doc: "Well when a connection opens."},
			{Key: "env", Type: document.Text("a variable", func(v document.Value, s string) {
				if !document.IsVariableName(s) {
					v.Fault("%s is no name of a variable; use letters, digits and _", v.Shown())
					return
				}
				p.Env = s
				r.variables = append(r.variables, s)
			}), Doc: "Well when the environment variable is set and not empty."},
			{Key: "file", Type: document.Text("a path", func(v document.Value, s string) {
				if filepath.IsAbs(s) || !filepath.IsLocal(s) {
					v.Fault("%s leads out of the folder of switchboard.yaml; name a file within it", v.Shown())
					return
				}
				p.File = filepath.ToSlash(filepath.Clean(s))
			}), Doc: "Well when the file within the folder of switchboard.yaml exists and is not empty."},
			{Key: "oauth", Type: document.Text("a server", func(v document.Value, s string) {
				if r.checkServer(v, s, r.serverIDs) && r.checkSignsIn(v, switchboard.ServerID(s)) {
					p.OAuth = switchboard.ServerID(s)
				}
			}), Doc: "Well when the connection that Switchboard's own requests to the server use is valid, or can be renewed: the one that `switchboard server connect ID` makes, or with `credential: {client: …}` Switchboard's own."},
			{Key: "headers", Type: document.Custom("a map from header to text", document.Schema{"type": "object", "additionalProperties": document.Schema{"type": "string", "minLength": 1}}, func(v document.Value) { p.Headers = r.readHeaders(v) }), Doc: "With `http`: headers of the request. A secret is a reference: `${env:NAME}`, `${file:PATH}` or `${secret:NAME}`."},
			{Key: "arguments", Type: document.Custom("a map of any shape", document.Schema{"type": "object"}, func(v document.Value) { p.Arguments = v.ReadJSONMap() }), Doc: "With `tool`: the arguments of the call."},
			{Key: "is", Type: document.Custom("a map from JSON Pointer to value", document.Schema{"type": "object", "propertyNames": document.Schema{"pattern": "^/"}}, func(v document.Value) {
				p.Is = readArguments(v)
				for _, e := range v.Pairs {
					if !strings.HasPrefix(e.Key.Text, "/") {
						key := v
						key.Node = e.Key
						key.Fault("%s: want a JSON Pointer into the structured result, such as /ok", document.Shown(e.Key.Text))
					}
				}
			}), Doc: "With `tool`: what the structured result must hold, such as `{/ok: true}`."},
		},
		Hints: map[string]string{"credential": `write "oauth"`, "command": noCommand, "exec": noCommand, "cmd": noCommand, "shell": noCommand, "script": noCommand, "url": `write "http"`, "args": `write "arguments"`, "header": `write "headers"`},
	}
}

// checkSignsIn reports whether Switchboard gets the tokens for a server at its provider. If it does not, that is a fault.
func (r *atomReader) checkSignsIn(v document.Value, id switchboard.ServerID) bool {
	s := r.servers[string(id)]
	switch {
	case s == nil || s.SignsIn(): // nil if switchboard.yaml cannot be read, which has a fault
		return true
	case s.Transport == "": // its row has a fault
		return true
	case s.Transport != switchboard.TransportHTTP:
		v.Fault("server %q runs as a program, and has no connection at a provider; probe its health: server: %s", id, id)
	default:
		v.Fault("server %q has the header Authorization, and so no connection at a provider; remove the header, or probe a tool of it that needs the token: tool: %s/…", id, id)
	}
	return false
}

// checkProbe reports a probe that is not of exactly one kind, and keys that do not go with its kind.
func (r *atomReader) checkProbe(m document.FixedMap) {
	var kinds []string
	for _, k := range probeKinds {
		if m.HasKey(k) {
			kinds = append(kinds, k)
		}
	}
	// A key that is none has a fault already, and probably was meant as the kind.
	foreign := slices.ContainsFunc(m.Pairs, func(p document.NodePair) bool { return !slices.Contains(probeKeys, p.Key.Text) })
	if len(kinds) > 1 || len(kinds) == 0 && !foreign {
		m.Fault("a probe is exactly one of %s, and this one is %s", strings.Join(probeKinds, ", "), orNone(kinds))
		return
	}
	for key, kind := range map[string]string{"headers": "http", "arguments": "tool", "is": "tool"} {
		if m.HasKey(key) && len(kinds) == 1 && kinds[0] != kind {
			m.Fault("%q does not go with %q; it is for %q", key, kinds[0], kind)
		}
	}
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " and ")
}

// readAtomsFile reads atoms.yaml.
func (r *registryReader) readAtomsFile(name string) {
	doc, ok := r.readDocument(name)
	if !ok {
		r.atomsUnknown = true
		return
	}
	r.readAtoms(doc)
}

func (r *registryReader) readAtoms(doc document.Value) {
	r.atomsUnknown = doc.Kind != document.KindMap
	for _, e := range doc.ReadNamed(document.MaxItems, false) {
		if !capability.IsID(e.Name) {
			e.Key.Fault("%s: want words of small letters, digits and _ parted by dots, such as acc.brian.page, at most %d bytes", document.Shown(e.Name), capability.MaxIDBytes)
			continue
		}
		q := &atomReader{registryReader: r, atom: &capability.Atom{ID: e.Name, Position: fmt.Sprintf("%s:%d:%d", e.Key.File, e.Key.Line, e.Key.Column)}}
		r.atoms[e.Name] = q.atom
		m, ok := e.Value.WithContext("atom %q: ", e.Name).Open(q.keys())
		if !ok {
			continue
		}
		m.Line, m.Column = e.Key.Line, e.Key.Column
		m.Read()
		if m.HasKey("probe") && q.atom.Probe.None() {
			q.atom.Critical = false // the fault in the probe is enough
		}
	}
}
