package policy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The types of the answers, as far as the compiler knows them.
var (
	isText = func(t types.Type) bool {
		return canBe(t, func(t types.Type) bool { _, ok := t.(types.String); return ok })
	}
	isTexts = func(t types.Type) bool {
		return canBe(t, func(t types.Type) bool { return hasElements(t, true, isText) })
	}
	isObject = func(t types.Type) bool {
		return canBe(t, func(t types.Type) bool { _, ok := t.(*types.Object); return ok })
	}
	isObjects = func(t types.Type) bool {
		return canBe(t, func(t types.Type) bool { return hasElements(t, false, isObject) })
	}
	isReasons = func(t types.Type) bool {
		return canBe(t, func(t types.Type) bool { return hasElements(t, false, isText) })
	}
)

// answerShapes holds the required type of each answer, and how to write it.
var answerShapes = map[string]struct {
	fits  func(types.Type) bool
	write string
}{
	AnswerAllowed:     {isTexts, AnswerAllowed + " contains c.id if { … }"},
	AnswerDeny:        {func(t types.Type) bool { return isObjectOf(t, isReasons) }, AnswerDeny + `[c.id] contains "…" if { … }`},
	AnswerKeepOut:     {func(t types.Type) bool { return isObjectOf(t, isReasons) }, AnswerKeepOut + `[c.id] contains "…" if { … }`},
	AnswerObligations: {func(t types.Type) bool { return isObjectOf(t, isObjects) }, AnswerObligations + "[c.id] contains {…} if { … }"},
}

// canBe reports whether is accepts t, or one of the types that t may be. A type that the compiler
// does not know may be any.
func canBe(t types.Type, is func(types.Type) bool) bool {
	any, ok := t.(types.Any)
	if !ok {
		return is(t)
	}
	return len(any) == 0 || slices.ContainsFunc(any, func(t types.Type) bool { return canBe(t, is) })
}

// hasElements reports whether t is a set (or an array, if arrays is true) and of accepts the type
// of its elements.
func hasElements(t types.Type, arrays bool, of func(types.Type) bool) bool {
	switch t := t.(type) {
	case *types.Set:
		return t.Of() == nil || of(t.Of())
	case *types.Array:
		if !arrays {
			return false
		}
		for i := range t.Len() {
			if !of(t.Select(i)) {
				return false
			}
		}
		return t.Dynamic() == nil || of(t.Dynamic())
	}
	return false
}

// isObjectOf reports whether t is an object with texts as keys, and of accepts the type of its
// values.
func isObjectOf(t types.Type, of func(types.Type) bool) bool {
	return canBe(t, func(t types.Type) bool {
		o, ok := t.(*types.Object)
		if !ok {
			return false
		}
		for _, p := range o.StaticProperties() {
			if _, ok := p.Key.(string); !ok || !of(p.Value) {
				return false
			}
		}
		d := o.DynamicProperties()
		return d == nil || isText(d.Key) && of(d.Value)
	})
}

// wrongTypes returns the faults that compilation shows: answers of a wrong type, and a layer
// without a rule for allowed_tools, which would deny everything.
func (l *Layer) wrongTypes() (faults switchboard.Faults) {
	fault := func(at *ast.Location, format string, args ...any) {
		faults = append(faults, switchboard.Fault{File: at.File, Line: at.Row, Column: at.Col, Text: fmt.Sprintf(format, args...)})
	}
	for _, name := range l.Answers() {
		t := l.compiler.TypeEnv.GetByRef(l.kind.rootRef().Append(ast.StringTerm(name)))
		i := slices.IndexFunc(l.rules, func(r *CompiledRule) bool { return r.Answer == name || name == AnswerKeepOut && r.KeepsOut })
		if i >= 0 && t != nil && !answerShapes[name].fits(t) {
			fault(l.rules[i].Location, "%s is %s; write: %s", name, types.Sprint(t), answerShapes[name].write)
		}
	}
	if !l.addsAllowed {
		first := slices.Min(slices.Collect(maps.Keys(l.compiler.Modules)))
		fault(l.compiler.Modules[first].Package.Location, "nothing adds to %s, so this layer denies every tool; write: %s", AnswerAllowed, answerShapes[AnswerAllowed].write)
	}
	return faults
}
