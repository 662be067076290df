package author

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/cost"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Warning is about something that compiles but is most likely not intended.
type Warning struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"` // from 1; 0 if the whole file or folder is meant
	Column int    `json:"column,omitempty"`

	// Rule is the rule that the warning is about; "" means none in particular.
	Rule string `json:"rule,omitempty"`

	// About is the kind of the warning, in one word.
	About string `json:"about"`
	Text  string `json:"text"`
}

// String returns file:line:column, the rule, the text and the kind.
func (w Warning) String() string {
	f := switchboard.Fault{File: w.File, Line: w.Line, Column: w.Column, Text: w.Text}
	if w.Rule != "" {
		f.Text = w.Rule + ": " + w.Text
	}
	return fmt.Sprintf("%s (%s)", f, w.About)
}

// KnownNames lists the servers and tools that exist.
type KnownNames struct {
	Servers []switchboard.ServerID
	Tools   []switchboard.ToolID

	// Silent lists the servers that have not listed their tools yet.
	Silent []switchboard.ServerID

	// VetoForTask says that a veto for one requirement counts for the whole task.
	VetoForTask bool
}

// NamesTools reports whether the layer's rules name tools by id, so that Lint needs the offers of
// the servers.
func NamesTools(l *policy.Layer) bool {
	c := linter{layer: l}
	for _, r := range l.Rules() {
		c.lintNames(r)
	}
	return slices.ContainsFunc(c.found, func(w Warning) bool { return strings.Contains(w.Text, "not a tool of a server") })
}

// Lint checks the rules of a layer that compiles, without evaluating them.
func Lint(s *Sources, l *policy.Layer, known KnownNames) []Warning {
	c := linter{layer: l, known: known, flow: followClientValues(l)}
	c.lintUnused(s)
	for _, r := range l.Unreached() {
		c.warn("unreached", r, nil, "none of %s depends on it, so it decides nothing; give it one of these names, or remove it", strings.Join(l.Answers(), ", "))
	}
	c.lintIterations()
	for _, r := range l.Rules() {
		c.lintNegation(r)
		c.lintNames(r)
		c.lintCost(r)
		if !s.Shipped { // the shipped rules are for this: see trust.rego
			c.lintVetoes(r)
		}
	}
	slices.SortStableFunc(c.found, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(c.found)
}

type linter struct {
	layer *policy.Layer
	known KnownNames
	flow  *clientFlow
	found []Warning
}

func (c *linter) warn(about string, r *policy.CompiledRule, at *ast.Location, format string, args ...any) {
	if at == nil {
		at = r.Location
	}
	c.found = append(c.found, Warning{at.File, at.Row, at.Col, r.DisplayName(), about, fmt.Sprintf(format, args...)})
}

// lintUnused reports what OPA finds only in strict mode: unused variables and imports.
func (c *linter) lintUnused(s *Sources) {
	modules := map[string]*ast.Module{}
	for _, f := range s.ruleFiles() {
		m, err := policy.Parse(s.Kind, f)
		if err != nil {
			return // impossible, because the layer compiles
		}
		modules[f.Name] = m
	}
	strict := policy.NewCompiler().WithStrict(true)
	strict.Compile(modules)
	if !strict.Failed() {
		return
	}
	for _, f := range policy.FaultsOf(s.Name, strict.Errors) {
		_, f.Text, _ = strings.Cut(f.Text, ": ")
		c.found = append(c.found, Warning{f.File, f.Line, f.Column, "", "unused", f.Text + "; remove it, or use it"})
	}
}

// lintVetoes finds a veto that depends on the requirement: another requirement of the task
// may select the tool.
func (c *linter) lintVetoes(r *policy.CompiledRule) {
	if r.Answer != policy.AnswerDeny || c.known.VetoForTask {
		return
	}
	visited := map[*policy.CompiledRule]bool{}
	var at *ast.Location
	var visit func(r *policy.CompiledRule)
	visit = func(r *policy.CompiledRule) {
		if visited[r] {
			return
		}
		visited[r] = true
		ast.WalkRefs(r.Rule, func(ref ast.Ref) bool {
			if at == nil && len(ref) > 1 && ref[0].Equal(ast.InputRootDocument) && ref[1].Equal(keyRequirement) {
				at = ref[0].Location
			}
			return false
		})
		for _, n := range r.Dependencies {
			visit(n)
		}
	}
	if visit(r); at != nil {
		c.warn("requirement", r, at, "it reads input.requirement, so a tool that it vetoes for one requirement of a task can be selected for another; "+
			"read the candidate's own capabilities, or have the operator write policies: {veto: task} in switchboard.yaml")
	}
}

// searchableText is the length of a text, in bytes, that a pattern should be able to search. Longer
// texts are rare.
const searchableText = 64 << 10

// lintCost finds calls of builtins that are refused (SB-POL-002) for values of a size that clients
// may send.
func (c *linter) lintCost(r *policy.CompiledRule) {
	sent := func(t *ast.Term) bool { return c.flow.comesFromClient(r.Rule, t) && !c.isBounded(r, t) }
	call := func(op ast.Ref, operands []*ast.Term) {
		name, operands, at := op.String(), inputOperands(op, operands), 0
		reach, costs := cost.ForClients(name)
		switch {
		case costs:
			each := slices.ContainsFunc(operands, sent)
			for _, i := range reach.Operands {
				each = each && sent(operands[i])
			}
			if each {
				c.warn("cost", r, op[0].Location, "%s gets a value that a client sends, and is refused with %s for %s; compare its count, or a number itself, with a bound first", name, switchboard.CodePolicyFailed, reach.Refused)
			}
			return
		case name == ast.RegexReplace.Name:
			at = 1
		case name == ast.GlobMatch.Name:
		case strings.HasPrefix(name, "regex.") && name != ast.RegexIsValid.Name, name == ast.RegexMatchDeprecated.Name:
		default:
			return
		}
		pattern := operands[at]
		if ref := c.resolve(r, pattern); ref != nil {
			pattern = ast.NewTerm(ref)
		}
		patterns, ofInput := c.constantTexts(pattern), false
		if ref, ok := refOf(pattern); ok {
			ofInput = ref[0].Equal(ast.InputRootDocument)
		}
		if c.flow.comesFromClient(r.Rule, operands[at]) || ofInput && slices.ContainsFunc(operands, sent) {
			c.warn("cost", r, op[0].Location, "the pattern is not a constant, and %s gets a value that a client sends; a pattern that costs too much is refused with %s; write the pattern as a constant",
				name, switchboard.CodePolicyFailed)
		}
		for _, p := range patterns {
			text := string(p.Value.(ast.String))
			if name != ast.GlobMatch.Name {
				c.lintPattern(r, op, text)
			} else if most := longestGlobText(text); most < searchableText && slices.ContainsFunc(operands, sent) {
				c.warn("cost", r, op[0].Location, "%s gets a text that a client sends, and is refused with %s for one of more than %d bytes, because the pattern %q has %d wildcards; use fewer, or startswith and endswith",
					name, switchboard.CodePolicyFailed, most, text, cost.CountWildcards(text))
			}
		}
	}
	ast.WalkExprs(r.Rule, func(e *ast.Expr) bool {
		if e.IsCall() {
			call(e.Operator(), e.Operands())
		}
		return false
	})
	ast.WalkTerms(r.Rule, func(t *ast.Term) bool {
		if v, ok := t.Value.(ast.Call); ok {
			if op, ok := v[0].Value.(ast.Ref); ok {
				call(op, v[1:])
			}
		}
		return false
	})
}

// lintPattern warns of a regular expression that is too large, for example because it repeats by
// count.
func (c *linter) lintPattern(r *policy.CompiledRule, op ast.Ref, pattern string) {
	if size, why := cost.Pattern(pattern); why != "" {
		c.warn("cost", r, op[0].Location, "%s is never started: %s", op, why)
	} else if most := cost.MaxSteps / max(1, size); most < searchableText {
		c.warn("cost", r, op[0].Location, "the pattern has %.0f instructions, because it repeats by count; texts of more than %.0f bytes are refused with %s; write * or + for the count, or a smaller count",
			size, most, switchboard.CodePolicyFailed)
	}
}

// longestGlobText returns the length of the longest text, up to wantedText, that glob.match starts
// with for the pattern.
func longestGlobText(pattern string) int {
	return sort.Search(searchableText, func(n int) bool { return cost.GlobRefused(pattern, n+1) })
}

// lintIterations finds rules that iterate over the candidates for each candidate.
func (c *linter) lintIterations() {
	of := map[*ast.Rule]*policy.CompiledRule{}
	for _, r := range c.layer.Rules() {
		of[r.Rule] = r
	}
	over := map[*policy.CompiledRule]bool{} // it iterates over the candidates, or refers to a rule that does
	visited := map[*policy.CompiledRule]bool{}
	var goesOver func(r *policy.CompiledRule) bool
	goesOver = func(r *policy.CompiledRule) bool {
		if visited[r] {
			return over[r]
		}
		visited[r] = true
		over[r] = candidatePasses(r) > 0
		for _, n := range r.Dependencies {
			over[r] = goesOver(n) || over[r]
		}
		return over[r]
	}
	for _, r := range c.layer.Rules() {
		switch n := candidatePasses(r); {
		case n == 0:
			continue
		case n > 1:
			c.warn("quadratic", r, nil, "it iterates over the candidates for each candidate; decide about each one alone, or iterate over them once in a rule of its own")
		}
		ast.WalkRefs(r.Body, func(ref ast.Ref) bool {
			for _, asked := range c.layer.RulesAt(ref) {
				n := of[asked]
				if n == nil || n.Rule == r.Rule || !goesOver(n) {
					continue
				}
				keyed := len(n.Head.Args) > 0 || len(ref) > len(n.Ref().GroundPrefix())
				if keyed {
					c.warn("quadratic", r, ref[0].Location, "for each candidate it evaluates %s, which iterates over the candidates itself; make that a function of one candidate", n.DisplayName())
					break
				}
			}
			return false
		})
	}
}

// candidatePasses returns how often a rule iterates over the candidates. Counting them does not
// count.
func candidatePasses(r *policy.CompiledRule) int {
	n := 0
	v := &ast.GenericVisitor{}
	*v = *ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.Rule:
			return x != r.Rule
		case ast.Ref:
			if len(x) > 1 && x[0].Equal(ast.InputRootDocument) && x[1].Equal(keyCandidates) {
				if len(x) > 2 {
					if _, ok := x[2].Value.(ast.Var); !ok {
						return false // one of them, by its index
					}
				}
				n++
			}
		}
		return false
	})
	v.Walk(r.Body)
	return n - len(onlyCounted(r))
}

// onlyCounted returns the expressions of a body that pass the candidates to count alone.
func onlyCounted(r *policy.CompiledRule) (found []*ast.Expr) {
	ast.WalkExprs(r.Body, func(e *ast.Expr) bool {
		a, b, ok := policy.EquationSides(e)
		if !ok || !e.Generated {
			return false
		}
		ref, ok := b.Value.(ast.Ref)
		if !ok || len(ref) != 2 || !ref[0].Equal(ast.InputRootDocument) || !ref[1].Equal(keyCandidates) {
			return false
		}
		ast.WalkExprs(r.Body, func(call *ast.Expr) bool {
			if call.IsCall() && call.Operator().Equal(ast.Count.Ref()) && call.Operand(0).Equal(a) {
				found = append(found, e)
			}
			return false
		})
		return false
	})
	return found
}

// optional lists the paths of input that may be missing.
var optional = []ast.Ref{
	ast.MustParseRef("input.tenant_policy"), ast.MustParseRef("input.call"),
	ast.MustParseRef("input.requirement.verb"), ast.MustParseRef("input.requirement.resource"), ast.MustParseRef("input.requirement.tools"),
}

// lintNegation finds `not f(input.x)` where x may be missing. The argument is evaluated before
// the not, so the rule is undefined then.
func (c *linter) lintNegation(r *policy.CompiledRule) {
	bodies := []ast.Body{r.Body}
	ast.WalkBodies(r.Body, func(b ast.Body) bool { bodies = append(bodies, b); return false })
	for _, body := range bodies {
		made := map[ast.Var]*ast.Term{} // the terms that the compiler puts before an expression
		calls := map[ast.Var]*ast.Expr{}
		for _, e := range body {
			if e.Generated && e.IsCall() {
				if a, b, ok := policy.EquationSides(e); ok {
					if v, ok := a.Value.(ast.Var); ok {
						made[v] = b
					}
				} else if n := len(e.Operands()); n > 0 {
					if v, ok := e.Operand(n - 1).Value.(ast.Var); ok {
						calls[v] = e
					}
				}
			}
			if !e.Negated || !e.IsCall() {
				continue
			}
			var visit func(t *ast.Term)
			visit = func(t *ast.Term) {
				v, ok := t.Value.(ast.Var)
				if !ok {
					return
				}
				if call := calls[v]; call != nil {
					for _, o := range call.Operands()[:len(call.Operands())-1] {
						visit(o)
					}
				}
				ref, ok := refOf(made[v])
				if ok && slices.ContainsFunc(optional, func(o ast.Ref) bool { return ref.HasPrefix(o) && !ref.Equal(optional[0]) }) {
					c.warn("not", r, e.Location, "if %v is missing, the whole rule is undefined, because the arguments of a `not` are evaluated before it; put the condition into a rule of its own, and negate that", ref)
				}
			}
			for _, o := range e.Operands() {
				visit(o)
			}
		}
	}
}

func refOf(t *ast.Term) (ast.Ref, bool) {
	if t == nil {
		return nil, false
	}
	ref, ok := t.Value.(ast.Ref)
	return ref, ok
}

// lintNames finds ids in a rule that no tool or server has.
func (c *linter) lintNames(r *policy.CompiledRule) {
	if key := answerKey(r); key != nil {
		c.checkNames(r, keyID, key)
	}
	ast.WalkExprs(r.Body, func(e *ast.Expr) bool {
		var a, b *ast.Term
		switch op := e.Operator(); {
		case !e.IsCall() || len(e.Operands()) != 2:
			return false
		case e.IsEquality(), op.Equal(ast.Equal.Ref()), op.Equal(ast.NotEqual.Ref()), op.Equal(ast.Member.Ref()):
			a, b = e.Operand(0), e.Operand(1)
		default:
			return false
		}
		for _, side := range [][2]*ast.Term{{a, b}, {b, a}} {
			ref := c.resolve(r, side[0])
			if len(ref) > 1 && !ref[0].Equal(ast.InputRootDocument) || len(ref) == 4 && ref[1].Equal(keyCandidates) {
				against := side[1]
				if ref := c.resolve(r, against); ref != nil {
					against = ast.NewTerm(ref)
				}
				c.checkNames(r, ref[len(ref)-1], against)
			}
		}
		return false
	})
}

// answerKey returns the candidate that an answer is about: "a/b" of deny["a/b"] contains "…", or of
// allowed_tools contains "a/b".
func answerKey(r *policy.CompiledRule) *ast.Term {
	switch {
	case r.Answer == "":
		return nil
	case r.Answer == policy.AnswerAllowed:
		return r.Head.Key
	case len(r.Head.Reference) > 1:
		return r.Head.Reference[1]
	}
	return nil
}

// resolve returns the path that a term is, or that the compiler has replaced by a variable.
func (c *linter) resolve(r *policy.CompiledRule, t *ast.Term) ast.Ref {
	if ref, ok := t.Value.(ast.Ref); ok {
		return ref
	}
	var found ast.Ref
	if v, ok := t.Value.(ast.Var); ok {
		ast.WalkExprs(r.Body, func(e *ast.Expr) bool {
			if a, b, ok := policy.EquationSides(e); ok && a.Value.Compare(v) == 0 {
				found, _ = b.Value.(ast.Ref)
			}
			return false
		})
	}
	return found
}

// checkNames warns of the texts in a term that name no tool or no server.
func (c *linter) checkNames(r *policy.CompiledRule, member, t *ast.Term) {
	for _, text := range c.constantTexts(t) {
		name := string(text.Value.(ast.String))
		at := text.Location
		server, _, ok := strings.Cut(name, "/")
		switch {
		case member.Equal(keyID) && (!ok || !slices.Contains(c.known.Servers, switchboard.ServerID(server))):
			c.warn("stranger", r, at, "%q is not a tool of a server here; write server/tool, with one of %s", name, c.serverList())
		case member.Equal(keyID) && !slices.Contains(c.known.Silent, switchboard.ServerID(server)):
			if !slices.ContainsFunc(c.known.Tools, func(id switchboard.ToolID) bool { return id.String() == name }) {
				c.warn("stranger", r, at, "server %s has no tool %q; write it as the server does", server, name[len(server)+1:])
			}
		case member.Equal(keyServer) && !slices.Contains(c.known.Servers, switchboard.ServerID(name)):
			c.warn("stranger", r, at, "there is no server %q; there are %s", name, c.serverList())
		}
	}
}

// maxListed limits the servers that a warning names.
const maxListed = 16

func (c *linter) serverList() string {
	if len(c.known.Servers) == 0 {
		return "no servers"
	}
	names := make([]string, len(c.known.Servers))
	for i, id := range c.known.Servers {
		names[i] = string(id)
	}
	if len(names) > maxListed {
		names = append(names[:maxListed], "…")
	}
	return strings.Join(names, ", ")
}

// constantTexts returns the texts in a term. A reference to a constant rule counts as the texts of
// that rule.
func (c *linter) constantTexts(t *ast.Term) (out []*ast.Term) {
	switch v := t.Value.(type) {
	case ast.String:
		return []*ast.Term{t}
	case ast.Set:
		v.Foreach(func(e *ast.Term) { out = append(out, c.constantTexts(e)...) })
	case *ast.Array:
		v.Foreach(func(e *ast.Term) { out = append(out, c.constantTexts(e)...) })
	case ast.Ref:
		for _, r := range c.layer.RulesAt(v) {
			for _, said := range []*ast.Term{r.Head.Value, r.Head.Key} {
				if said != nil && len(v) == len(r.Ref().GroundPrefix()) {
					out = append(out, c.constantTexts(said)...)
				}
			}
		}
	}
	return out
}

// Unread returns the top-level settings of a tenant that no rule of any layer reads, for example
// mistyped ones. It returns none if a rule reads the settings as a whole, or by names that are not
// constant.
func Unread(word []byte, layers ...*Sources) ([]string, error) {
	if word == nil {
		return nil, nil
	}
	v, err := policy.ParseValue(word)
	if err != nil {
		return nil, err
	}
	obj, ok := v.(ast.Object)
	if !ok {
		return nil, nil
	}
	read := map[string]bool{}
	for _, s := range layers {
		for _, f := range s.ruleFiles() {
			m, err := policy.Parse(s.Kind, f)
			if err != nil {
				return nil, policy.FaultsOf(f.Name, err)
			}
			if !addSettings(m, read) {
				return nil, nil
			}
		}
	}
	unread := map[string]bool{}
	obj.Foreach(func(k, _ *ast.Term) {
		if name, ok := k.Value.(ast.String); ok && !read[string(name)] {
			unread[string(name)] = true
		}
	})
	return slices.Sorted(maps.Keys(unread)), nil
}

// addSettings adds the settings that a file reads to read, and reports whether it can read no
// others.
func addSettings(m *ast.Module, read map[string]bool) bool {
	for _, i := range m.Imports {
		if ref, ok := i.Path.Value.(ast.Ref); ok && ref[0].Equal(ast.InputRootDocument) {
			return false
		}
	}
	all := true
	v := &ast.GenericVisitor{}
	get := func(operands []*ast.Term) bool { // object.get(input.tenant_policy, "name", …)
		ref, ok := operands[0].Value.(ast.Ref)
		if !ok || len(ref) != 2 || !readsSettings(ref) || len(operands) < 3 {
			return false
		}
		key := operands[1]
		if path, ok := key.Value.(*ast.Array); ok && path.Len() > 0 {
			key = path.Elem(0)
		}
		name, ok := key.Value.(ast.String)
		read[string(name)] = ok
		return ok
	}
	*v = *ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.Expr:
			return x.IsCall() && x.Operator().Equal(ast.ObjectGet.Ref()) && get(x.Operands())
		case ast.Call:
			op, ok := x[0].Value.(ast.Ref)
			return ok && op.Equal(ast.ObjectGet.Ref()) && get(x[1:])
		case ast.Ref:
			switch {
			case !x[0].Equal(ast.InputRootDocument):
			case len(x) == 1:
				all = false
			case readsSettings(x) && len(x) == 2:
				all = false
			case readsSettings(x):
				name, ok := x[2].Value.(ast.String)
				read[string(name)] = true
				all = all && ok
			default:
				_, ok := x[1].Value.(ast.String)
				all = all && ok
			}
			for _, t := range x[1:] {
				v.Walk(t)
			}
			return true
		case ast.Var:
			all = all && !x.Equal(ast.InputRootDocument.Value)
		}
		return false
	})
	v.Walk(m)
	return all
}

func readsSettings(ref ast.Ref) bool {
	return len(ref) > 1 && ref[0].Equal(ast.InputRootDocument) && ref[1].Equal(keySettings)
}

// The keys of input that are checked.
var (
	keyArguments   = ast.InternedTerm("arguments")
	keyCandidates  = ast.InternedTerm("candidate_tools")
	keyID          = ast.InternedTerm("id")
	keyRequirement = ast.InternedTerm("requirement")
	keyServer      = ast.InternedTerm("server")
	keySettings    = ast.InternedTerm("tenant_policy")
	keyURI         = ast.InternedTerm("uri")
)
