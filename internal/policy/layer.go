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
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Kind says whose a layer is.
type Kind string

// The layers.
const (
	Operator Kind = "operator"
	Tenant   Kind = "tenant"
)

// root is where the layer's rules stand.
func (k Kind) root() ast.Ref {
	if k == Tenant {
		return ast.MustParseRef("data.switchboard.tenant")
	}
	return ast.MustParseRef("data.switchboard")
}

// owns reports whether a package, or a piece of data, is the layer's to say.
func (k Kind) owns(ref ast.Ref) bool {
	tenants := Tenant.root()
	if k == Tenant {
		return ref.HasPrefix(tenants)
	}
	return !ref.HasPrefix(tenants)
}

// The names of what a layer answers.
const (
	nameAllowed     = "allowed_tools"
	nameDeny        = "deny"
	nameObligations = "obligations"
)

var answers = []string{nameAllowed, nameDeny, nameObligations}

// A Layer is a compiled set of rules with its data. It is immutable and safe for
// concurrent use.
type Layer struct {
	kind     Kind
	digest   switchboard.Digest
	compiler *ast.Compiler
	store    storage.Store
	query    ast.Body
	queries  ast.QueryCompiler
	rules    []*rule

	// asks are what the query asks for; nil means each answer, under its name.
	asks []asked

	allows bool // something adds to allowed_tools

	// pieces is the layer once more, cut so that each rule can be asked alone;
	// nil where it cannot be.
	pieces func() *Layer
}

// asked is part of an answer, and the variable of the query that stands for it.
type asked struct {
	variable ast.Var
	answer   string
}

// unavailable are the builtins that policies cannot have: they reach out, or can be made to, or have no bound.
var unavailable = map[string]bool{
	"http.send": true, "net.lookup_ip_addr": true, "opa.runtime": true,
	"json.match_schema": true, "json.verify_schema": true, // a schema may refer to others by URL

	"graph.reachable_paths": true, "strings.render_template": true, // nobody can tell how long they take
}

// Capabilities is what Rego can do here: all of OPA, but for what reaches out
// of the decision. It must not be modified.
var Capabilities = sync.OnceValue(func() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool { return unavailable[b.Name] })
	c.AllowNet = []string{}
	return c
})

// IsTest reports whether a file is one of tests, which no layer is made of.
func IsTest(file string) bool { return strings.HasSuffix(file, "_test.rego") }

// Compile compiles the files of a layer; tests among them are left out. The
// error is Faults. No files at all make a layer that allows nothing.
func Compile(kind Kind, files []switchboard.PolicyFile) (*Layer, error) {
	l, err := compile(kind, files, func(*ast.Module) {})
	if err != nil {
		return nil, err
	}
	var faults switchboard.Faults
	for _, r := range l.unreached() {
		if meant := l.meant(r); meant != "" {
			faults = append(faults, switchboard.Fault{
				File: r.Location.File, Line: r.Location.Row, Column: r.Location.Col,
				Text: fmt.Sprintf("rule %q decides nothing, since nothing asks for it; did you mean %q?", r.Head.Ref()[0], meant),
			})
		}
	}
	faults = append(faults, l.wrongTypes()...)
	if len(faults) > 0 {
		return nil, faults
	}
	l.pieces = sync.OnceValue(func() *Layer { return takenApart(kind, files) })
	return l, nil
}

// meant returns the answer that a rule which nothing asks for was most likely meant to add to, or "". Answers are rules of
// the layer's own package. A name of four letters is close to many words (any, env, key): so it has to be
// mistyped in one place, and of a rule that adds to a set or an object, as deny does.
func (l *Layer) meant(r *rule) string {
	if !r.Module.Package.Path.Equal(l.kind.root()) {
		return ""
	}
	name := strings.ToLower(r.Head.Ref()[0].String())
	for _, answer := range answers {
		near := levenshtein.ComputeDistance(name, answer) <= 2
		if answer == nameDeny {
			adds := r.Head.RuleKind() == ast.MultiValue || len(r.Head.Ref()) > 1
			near = adds && (levenshtein.ComputeDistance(name, answer) <= 1 || swapped(name, answer))
		}
		if near {
			return answer
		}
	}
	return ""
}

// swapped reports whether a is b with two neighbours in each other's place.
func swapped(a, b string) bool {
	for i := range len(b) - 1 {
		if b[:i]+b[i+1:i+2]+b[i:i+1]+b[i+2:] == a {
			return true
		}
	}
	return false
}

// compile is Compile of modules that alter has altered.
func compile(kind Kind, files []switchboard.PolicyFile, alter func(*ast.Module)) (*Layer, error) {
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
			faults = append(faults, addData(kind, data, f)...)
			continue
		}
		m, err := Parse(kind, f)
		if err != nil {
			faults = append(faults, faultsOf(f.Name, err)...)
			continue
		}
		alter(m)
		modules[f.Name] = m
	}
	if len(faults) > 0 {
		return nil, faults
	}
	l := &Layer{kind: kind, digest: canonical.Sum(sum.Bytes())}
	l.compiler = compiler().
		WithPathConflictsCheck(func(p []string) (bool, error) { return has(data, p), nil })
	l.compiler.Compile(modules)
	if l.compiler.Failed() {
		return nil, faultsOf("", l.compiler.Errors)
	}
	l.store = inmem.NewFromObjectWithOpts(data, inmem.OptReturnASTValuesOnRead(true))
	var err error
	l.queries = l.compiler.QueryCompiler()
	if l.query, err = l.queries.Compile(query(kind)); err != nil {
		return nil, faultsOf(string(kind), err)
	}
	l.analyse()
	l.allows = len(modules) == 0 || has(data, strings.Split(packageOf(kind)+"."+nameAllowed, ".")) ||
		slices.ContainsFunc(l.rules, func(r *rule) bool { return r.answer == nameAllowed })
	return l, nil
}

// Parse reads one file of rules, and holds it to the layer's package. The error
// is of package ast.
func Parse(kind Kind, f switchboard.PolicyFile) (*ast.Module, error) {
	m, err := ast.ParseModuleWithOpts(f.Name, string(f.Data), ast.ParserOptions{Capabilities: Capabilities(), RegoVersion: ast.RegoV1})
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, ast.NewError(ast.ParseErr, &ast.Location{File: f.Name, Row: 1, Col: 1}, "the file is empty; write package %s", packageOf(kind))
	}
	if p := m.Package.Path; !kind.owns(p) || !p.HasPrefix(ast.MustParseRef("data.switchboard")) {
		return nil, ast.NewError(ast.CompileErr, m.Package.Location, "%s is not the %s's; write package %s, or one below it", m.Package, kind, packageOf(kind))
	}
	return m, nil
}

func packageOf(k Kind) string { return strings.TrimPrefix(k.root().String(), "data.") }

// query asks for the layer's answers. What is undefined is an empty list, so
// that one query has them all.
func query(kind Kind) ast.Body {
	var b strings.Builder
	for _, name := range answers {
		fmt.Fprintf(&b, "%s = [x | x := %s.%s]\n", name, kind.root(), name)
	}
	return ast.MustParseBody(b.String())
}

// faultsOf turns OPA's errors into ours.
func faultsOf(file string, err error) switchboard.Faults {
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
				f.Text += "\n    " + cut(line)
			}
		}
		faults = append(faults, f)
	}
	slices.SortStableFunc(faults, func(a, b switchboard.Fault) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return faults
}

// addData reads a file of data, which stands at the top of data, into it.
func addData(kind Kind, data map[string]any, f switchboard.PolicyFile) switchboard.Faults {
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
		return fault("it is no JSON: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fault("something stands behind the JSON value")
	}
	top, ok := v.(map[string]any)
	if !ok {
		return fault("data is an object, which stands at the top of data")
	}
	for _, p := range leaves(top, nil) {
		ref := ast.Ref{ast.DefaultRootDocument}
		for _, s := range p {
			ref = append(ref, ast.StringTerm(s))
		}
		if !kind.owns(ref) {
			return fault("%s is not the %s's to say; put it below %s", ref, kind, kind.root())
		}
	}
	if at := merge(data, top, nil); at != "" {
		return fault("%s is given in another file too", at)
	}
	return nil
}

// leaves returns the paths of what v holds: as deep as the roots of layers.
func leaves(v map[string]any, at []string) (out [][]string) {
	for _, k := range slices.Sorted(maps.Keys(v)) {
		p := append(slices.Clone(at), k)
		if sub, ok := v[k].(map[string]any); ok && len(p) < 2 && len(sub) > 0 {
			out = append(out, leaves(sub, p)...)
			continue
		}
		out = append(out, p)
	}
	return out
}

// merge adds src to dst, and returns where both have something.
func merge(dst, src map[string]any, at []string) string {
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
		if at := merge(a, b, p); at != "" {
			return at
		}
	}
	return ""
}

func has(data map[string]any, p []string) bool {
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
