package policy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/agnivade/levenshtein"
	"github.com/goccy/go-yaml"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/policy/cost"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// LayerKind says which author a layer has.
type LayerKind string

// The layers, in their order.
const (
	Boundaries LayerKind = "boundaries" // Switchboard's own rules over the operator's rows; see package policy/boundary
	Operator   LayerKind = "operator"
	Tenant     LayerKind = "tenant"
)

// The packages of rules, and the path of the data of the layer Boundaries. They must not be modified.
var (
	switchboardRef = ast.Ref{ast.DefaultRootDocument, ast.StringTerm("switchboard")}
	boundariesRef  = ast.Ref{ast.DefaultRootDocument, ast.StringTerm("switchboard"), ast.StringTerm("boundaries")}
	tenantRef      = ast.Ref{ast.DefaultRootDocument, ast.StringTerm("switchboard"), ast.StringTerm("tenant")}
	boundaryRows   = ast.Ref{ast.DefaultRootDocument, ast.StringTerm("boundaries")}
)

// rootRef returns the package of the layer's rules.
func (k LayerKind) rootRef() ast.Ref {
	switch k {
	case Boundaries:
		return boundariesRef
	case Tenant:
		return tenantRef
	}
	return switchboardRef
}

// owns reports whether ref, a package or a path of data, belongs to the layer.
func (k LayerKind) owns(ref ast.Ref) bool {
	switch k {
	case Boundaries:
		return ref.HasPrefix(Boundaries.rootRef()) || ref.HasPrefix(boundaryRows)
	case Tenant:
		return ref.HasPrefix(Tenant.rootRef())
	}
	return !ref.HasPrefix(Tenant.rootRef())
}

// The names of the answers of a layer.
const (
	AnswerAllowed     = "allowed_tools"
	AnswerDeny        = "deny"
	AnswerObligations = "obligations"
)

// AnswerNames are the names of the answers of a layer.
var AnswerNames = []string{AnswerAllowed, AnswerDeny, AnswerObligations}

// A Layer is a compiled set of rules with its data. It is immutable and safe for
// concurrent use.
type Layer struct {
	kind     LayerKind
	digest   switchboard.Digest
	compiler *ast.Compiler
	store    storage.Store
	query    ast.Body
	queries  ast.QueryCompiler
	rules    []*CompiledRule
	prepared *sync.Map // expression → *preparedQuery; see Ask

	// variables are the variables of the query; nil means one for each answer, under its name.
	variables []answerVariable

	addsAllowed bool // a rule or data adds to allowed_tools

	// pieces returns a copy of the layer in which each rule can be asked alone; nil if that is not
	// possible.
	pieces func() *Layer
}

// answerVariable is a part of an answer, and the variable of the query that holds it.
type answerVariable struct {
	variable ast.Var
	answer   string
}

// WithData returns the layer with other data: one JSON object, the top of data. Nothing is compiled again. The rules of the
// returned layer cannot be asked one by one: an obligation is the whole layer's, and an edit of the data is an edit of it.
func (l *Layer) WithData(text []byte) (*Layer, error) {
	data := map[string]any{}
	if faults := AddDataFile(l.kind, data, switchboard.PolicyFile{Name: "data.json", Path: "data.json", Data: text}); len(faults) > 0 {
		return nil, faults
	}
	own := *l
	own.store = inmem.NewFromObjectWithOpts(data, inmem.OptReturnASTValuesOnRead(true))
	own.digest = canonical.Sum(fmt.Appendf(nil, "%s\x00%s", l.digest, text))
	own.pieces = func() *Layer { return nil }
	return &own, nil
}

// Kind returns the kind of the layer.
func (l *Layer) Kind() LayerKind { return l.kind }

// Rules returns the compiled rules, in the order of files and lines. They must not be modified.
func (l *Layer) Rules() []*CompiledRule { return l.rules }

// RulesAt returns the rules that a reference to data or a call of a function evaluates.
func (l *Layer) RulesAt(ref ast.Ref) []*ast.Rule { return l.compiler.GetRules(ref) }

// unavailableBuiltins are the builtins that policies cannot use: they reach outside, or can be made
// to, or have no time limit.
var unavailableBuiltins = map[string]bool{
	"http.send": true, "net.lookup_ip_addr": true, "opa.runtime": true,
	"json.match_schema": true, "json.verify_schema": true, // a schema may refer to another one by URL

	"graph.reachable_paths": true, "strings.render_template": true, // their time has no known limit
}

// Capabilities returns the Rego that policies can use: all of OPA without the unavailable builtins.
// It must not be modified.
var Capabilities = sync.OnceValue(func() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool { return unavailableBuiltins[b.Name] })
	c.AllowNet = []string{}
	return c
})

// IsTest reports whether a file holds tests. Tests are not part of a layer.
func IsTest(file string) bool { return strings.HasSuffix(file, "_test.rego") }

// Compile compiles the files of a layer without the tests among them. The error is Faults. A layer
// without files allows nothing.
func Compile(kind LayerKind, files []switchboard.PolicyFile) (*Layer, error) {
	l, err := compileModules(kind, files, func(*ast.Module) {})
	if err != nil {
		return nil, err
	}
	var faults switchboard.Faults
	for _, r := range l.Unreached() {
		if meant := l.likelyAnswer(r); meant != "" {
			faults = append(faults, switchboard.Fault{
				File: r.Location.File, Line: r.Location.Row, Column: r.Location.Col,
				Text: fmt.Sprintf("rule %q decides nothing, because no answer depends on it; did you mean %q?", r.Head.Ref()[0], meant),
			})
		}
	}
	faults = append(faults, l.wrongTypes()...)
	faults = append(faults, l.missingInputs()...)
	if len(faults) > 0 {
		return nil, faults
	}
	l.pieces = sync.OnceValue(func() *Layer { return compileApart(kind, files) })
	return l, nil
}

// likelyAnswer returns the answer that the author of an unreached rule most likely meant, or "".
// Answers are rules of the layer's own package. deny has only four letters and is close to many
// words (any, env, key). So only one mistake is accepted for it, and only in a rule that adds to a
// set or an object.
func (l *Layer) likelyAnswer(r *CompiledRule) string {
	if !r.Module.Package.Path.Equal(l.kind.rootRef()) {
		return ""
	}
	name := strings.ToLower(r.Head.Ref()[0].String())
	for _, answer := range l.Answers() {
		near := levenshtein.ComputeDistance(name, answer) <= 2
		if answer == AnswerDeny {
			adds := r.Head.RuleKind() == ast.MultiValue || len(r.Head.Ref()) > 1
			near = adds && (levenshtein.ComputeDistance(name, answer) <= 1 || isTransposition(name, answer))
		}
		if near {
			return answer
		}
	}
	return ""
}

// Answers returns the names of everything that the layer can answer.
func (l *Layer) Answers() []string {
	if l.kind == Operator {
		return slices.Concat(AnswerNames, []string{AnswerKeepOut})
	}
	return AnswerNames
}

// isTransposition reports whether a is b with two neighbouring letters swapped.
func isTransposition(a, b string) bool {
	for i := range len(b) - 1 {
		if b[:i]+b[i+1:i+2]+b[i:i+1]+b[i+2:] == a {
			return true
		}
	}
	return false
}

// compileModules compiles the files of a layer after alter has changed each module.
func compileModules(kind LayerKind, files []switchboard.PolicyFile, alter func(*ast.Module)) (*Layer, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b switchboard.PolicyFile) int { return cmp.Compare(a.Path, b.Path) })
	var faults switchboard.Faults
	modules := map[string]*ast.Module{}
	data := map[string]any{}
	var sum bytes.Buffer
	for _, f := range files {
		if IsTest(f.Path) {
			continue
		}
		fmt.Fprintf(&sum, "%s\x00%d\x00%s", f.Path, len(f.Data), f.Data)
		if path.Ext(f.Path) != ".rego" {
			faults = append(faults, AddDataFile(kind, data, f)...)
			continue
		}
		m, err := Parse(kind, f)
		if err != nil {
			faults = append(faults, FaultsOf(f.Name, err)...)
			continue
		}
		alter(m)
		modules[f.Name] = m
	}
	if len(faults) > 0 {
		return nil, faults
	}
	l := &Layer{kind: kind, digest: canonical.Sum(sum.Bytes()), prepared: &sync.Map{}}
	l.compiler = NewCompiler().
		WithPathConflictsCheck(func(p []string) (bool, error) { return hasPath(data, p), nil })
	l.compiler.Compile(modules)
	if l.compiler.Failed() {
		return nil, FaultsOf("", l.compiler.Errors)
	}
	l.store = inmem.NewFromObjectWithOpts(data, inmem.OptReturnASTValuesOnRead(true))
	var err error
	l.queries = l.compiler.QueryCompiler()
	if l.query, err = l.queries.Compile(answersQuery(kind)); err != nil {
		return nil, FaultsOf(string(kind), err)
	}
	l.analyseRules()
	l.addsAllowed = len(modules) == 0 || hasPath(data, strings.Split(packageOf(kind)+"."+AnswerAllowed, ".")) ||
		slices.ContainsFunc(l.rules, func(r *CompiledRule) bool { return r.Answer == AnswerAllowed })
	return l, nil
}

// NewCompiler returns a compiler for rules, with the builtins of Capabilities, the schema of input and
// the check of growth.
func NewCompiler() *ast.Compiler {
	return ast.NewCompiler().WithCapabilities(Capabilities()).WithSchemas(Schemas()).
		WithStageAfterID(ast.StageCheckRecursion, ast.CompilerStageDefinition{Name: "RefuseGrowth", MetricName: "compile_stage_refuse_growth", Stage: cost.RefuseGrowth})
}

// Parse parses one file of rules and checks that its package belongs to the layer. The error is of
// package ast.
func Parse(kind LayerKind, f switchboard.PolicyFile) (*ast.Module, error) {
	m, err := ast.ParseModuleWithOpts(f.Name, string(f.Data), parserOptions())
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, ast.NewError(ast.ParseErr, &ast.Location{File: f.Name, Row: 1, Col: 1}, "the file is empty; write package %s", packageOf(kind))
	}
	if p := m.Package.Path; !kind.owns(p) || !p.HasPrefix(switchboardRef) {
		return nil, ast.NewError(ast.CompileErr, m.Package.Location, "%s is not the %s's; write package %s, or one below it", m.Package, kind, packageOf(kind))
	}
	return m, nil
}

func packageOf(k LayerKind) string { return strings.TrimPrefix(k.rootRef().String(), "data.") }

// answersQuery returns a query for all answers of the layer. An undefined answer becomes an empty
// list, so that one query can have all of them.
func answersQuery(kind LayerKind) ast.Body {
	var b strings.Builder
	for _, name := range AnswerNames {
		fmt.Fprintf(&b, "%s = [x | x := %s.%s]\n", name, kind.rootRef(), name)
	}
	return mustParseBody(b.String())
}

// parserOptions are the options of the parsers of this package. Without capabilities in them, OPA builds its own for each text.
func parserOptions() ast.ParserOptions {
	return ast.ParserOptions{Capabilities: Capabilities(), RegoVersion: ast.RegoV1}
}

// mustParseBody parses a query of ours.
func mustParseBody(query string) ast.Body { return ast.MustParseBodyWithOpts(query, parserOptions()) }

// FaultsOf converts OPA's errors into ours.
func FaultsOf(file string, err error) switchboard.Faults {
	var all ast.Errors
	if one, ok := errors.AsType[*ast.Error](err); ok {
		all = ast.Errors{one}
	} else if !errors.As(err, &all) {
		return switchboard.Faults{{File: file, Text: err.Error()}}
	}
	faults := make(switchboard.Faults, 0, len(all))
	for _, e := range all {
		f := switchboard.Fault{File: file, Text: e.Code + ": " + e.Message}
		if e.Location != nil {
			f.File, f.Line, f.Column = cmp.Or(e.Location.File, file), e.Location.Row, e.Location.Col
		}
		if e.Details != nil {
			for _, line := range e.Details.Lines() {
				f.Text += "\n    " + truncate(line)
			}
		}
		faults = append(faults, f)
	}
	slices.SortStableFunc(faults, func(a, b switchboard.Fault) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return faults
}

// AddDataFile parses a data file and adds it to data.
func AddDataFile(kind LayerKind, data map[string]any, f switchboard.PolicyFile) switchboard.Faults {
	fault := func(format string, args ...any) switchboard.Faults {
		return switchboard.Faults{{File: f.Name, Text: fmt.Sprintf(format, args...)}}
	}
	text := f.Data
	if path.Ext(f.Path) != ".json" {
		var err error
		if text, err = yaml.YAMLToJSON(text); err != nil {
			return fault("%s", yaml.FormatError(err, false, false))
		}
	}
	d := util.NewJSONDecoder(bytes.NewReader(text))
	var v any
	if err := d.Decode(&v); err != nil {
		return fault("it is not JSON: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fault("there is text after the JSON value")
	}
	top, ok := v.(map[string]any)
	if !ok {
		return fault("a data file holds one object, the top of data")
	}
	for _, p := range topPaths(top, nil) {
		ref := ast.Ref{ast.DefaultRootDocument}
		for _, s := range p {
			ref = append(ref, ast.StringTerm(s))
		}
		if !kind.owns(ref) {
			return fault("%s does not belong to the %s; put it below %s", ref, kind, kind.rootRef())
		}
	}
	if at := mergeData(data, top, nil); at != "" {
		return fault("%s is also set in another file", at)
	}
	return nil
}

// topPaths returns the paths in v, two levels deep: as deep as the packages of layers.
func topPaths(v map[string]any, at []string) (out [][]string) {
	for _, k := range slices.Sorted(maps.Keys(v)) {
		p := append(slices.Clone(at), k)
		if sub, ok := v[k].(map[string]any); ok && len(p) < 2 && len(sub) > 0 {
			out = append(out, topPaths(sub, p)...)
			continue
		}
		out = append(out, p)
	}
	return out
}

// mergeData adds src to dst, and returns the first path that both have.
func mergeData(dst, src map[string]any, at []string) string {
	for _, k := range slices.Sorted(maps.Keys(src)) {
		p := append(slices.Clone(at), k)
		was, ok := dst[k]
		if !ok {
			dst[k] = src[k]
			continue
		}
		a, ok1 := was.(map[string]any)
		b, ok2 := src[k].(map[string]any)
		if !ok1 || !ok2 {
			return "data." + strings.Join(p, ".")
		}
		if at := mergeData(a, b, p); at != "" {
			return at
		}
	}
	return ""
}

func hasPath(data map[string]any, p []string) bool {
	var v any = data
	for _, k := range p {
		m, ok := v.(map[string]any)
		if !ok {
			return false
		}
		if v, ok = m[k]; !ok {
			return false
		}
	}
	return true
}
