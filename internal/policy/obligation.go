package policy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// shapes are the obligations and their members, besides type; those with a star
// must be there.
var shapes = map[string][]string{
	"require_approval": {"who", "expires"},
	"notify":           {"*who"},
	"enforce_timeout":  {"*timeout"},
	"redact":           {"fields", "detectors"}, // one of them at least
	"rate_limit":       {"*rate", "burst"},
	"log":              {"*level"},
}

// logLevels are what an obligation to log may ask for, the least first.
var logLevels = []string{"debug", "info", "warn", "error"}

// addObligation adds one obligation, an object with a type. The strictest of
// each counts. An error means that it is not known, or malformed.
func addObligation(all *switchboard.Obligations, t *ast.Term) error {
	obj, ok := t.Value.(ast.Object)
	if !ok {
		return fmt.Errorf(`obligation %s: want an object with a type, such as {"type": "log", "level": "info"}`, short(t))
	}
	kind, _ := str(obj, "type")
	members, ok := shapes[kind]
	if !ok {
		return fmt.Errorf("obligation %s: its type is none of enforce_timeout, log, notify, rate_limit, redact, require_approval", short(t))
	}
	for _, k := range obj.Keys() {
		name, _ := k.Value.(ast.String)
		if name != "type" && !slices.Contains(members, string(name)) && !slices.Contains(members, "*"+string(name)) {
			return fmt.Errorf("obligation %s: %s has no member %s", short(t), kind, short(k))
		}
	}
	for _, m := range members {
		if name, must := strings.CutPrefix(m, "*"); must && obj.Get(ast.StringTerm(name)) == nil {
			return fmt.Errorf("obligation %s: it lacks %s", short(t), name)
		}
	}
	if err := put(all, kind, obj); err != nil {
		return fmt.Errorf("obligation %s: %w", short(t), err)
	}
	return nil
}

func put(all *switchboard.Obligations, kind string, obj ast.Object) error {
	switch kind {
	case "require_approval":
		a := switchboard.Approval{}
		var err error
		if a.Who, err = strs(obj, "who"); err != nil {
			return err
		}
		if a.Expires, err = dur(obj, "expires"); err != nil {
			return err
		}
		all.Approval = stricter(all.Approval, a)
	case "notify":
		who, err := strs(obj, "who")
		if err != nil {
			return err
		}
		all.Notify = union(all.Notify, who)
	case "enforce_timeout":
		d, err := dur(obj, "timeout")
		if err != nil {
			return err
		}
		if all.Timeout == 0 || d < all.Timeout {
			all.Timeout = d
		}
	case "redact":
		return putRedact(all, obj)
	case "rate_limit":
		r, err := rate(obj)
		if err != nil {
			return err
		}
		all.Rate = slower(all.Rate, r)
	case "log":
		level, ok := str(obj, "level")
		if !ok || !slices.Contains(logLevels, level) {
			return fmt.Errorf("level: want one of %s", strings.Join(logLevels, ", "))
		}
		all.Log = louder(all.Log, level)
	}
	return nil
}

func putRedact(all *switchboard.Obligations, obj ast.Object) error {
	fields, err := strs(obj, "fields")
	if err != nil {
		return err
	}
	names, err := strs(obj, "detectors")
	if err != nil {
		return err
	}
	if len(fields)+len(names) == 0 {
		return errors.New("it lacks fields or detectors")
	}
	for _, f := range fields {
		if slices.Contains(switchboard.Detectors, switchboard.Detector(f)) {
			return fmt.Errorf("%q is a detector; write it under detectors", f)
		}
		if !strings.HasPrefix(f, "/") {
			return fmt.Errorf("%q is no JSON pointer into the result, such as /structuredContent/email", f)
		}
	}
	detectors := make([]switchboard.Detector, len(names))
	for i, n := range names {
		detectors[i] = switchboard.Detector(n)
		if !slices.Contains(switchboard.Detectors, detectors[i]) {
			return fmt.Errorf("%q is no detector; known detectors: %v", n, switchboard.Detectors)
		}
	}
	all.Redact, all.Detect = union(all.Redact, fields), union(all.Detect, detectors)
	return nil
}

// slower puts two rates together: a call is earned as rarely as by either, and no
// more are saved up than by either.
func slower(a, b switchboard.Rate) switchboard.Rate {
	if a.Every == 0 || b.Every == 0 {
		return switchboard.Rate{Every: a.Every + b.Every, Burst: a.Burst + b.Burst}
	}
	return switchboard.Rate{Every: max(a.Every, b.Every), Burst: min(a.Burst, b.Burst)}
}

// louder returns the higher of two levels.
func louder(a, b string) string {
	if slices.Index(logLevels, b) > slices.Index(logLevels, a) {
		return b
	}
	return a
}

// stricter puts two approvals together: those who may give both, within the
// shorter time.
func stricter(was *switchboard.Approval, a switchboard.Approval) *switchboard.Approval {
	if was == nil {
		return &a
	}
	both := *was
	switch {
	case len(both.Who) == 0:
		both.Who = a.Who
	case len(a.Who) > 0:
		both.Who = slices.DeleteFunc(slices.Clone(both.Who), func(w string) bool { return !slices.Contains(a.Who, w) })
		if len(both.Who) == 0 {
			both.Who = []string{""} // nobody has both
		}
	}
	if both.Expires == 0 || a.Expires > 0 && a.Expires < both.Expires {
		both.Expires = a.Expires
	}
	return &both
}

func union[T ~string](a, b []T) []T {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

func str(obj ast.Object, name string) (string, bool) {
	t := obj.Get(ast.StringTerm(name))
	if t == nil {
		return "", false
	}
	s, ok := t.Value.(ast.String)
	return string(s), ok
}

// strs reads a list or set of texts, or one text. Absent, it is empty.
func strs(obj ast.Object, name string) ([]string, error) {
	t := obj.Get(ast.StringTerm(name))
	if t == nil {
		return nil, nil
	}
	var terms []*ast.Term
	switch v := t.Value.(type) {
	case ast.String:
		terms = []*ast.Term{t}
	case ast.Set:
		terms = v.Slice()
	case *ast.Array:
		v.Foreach(func(e *ast.Term) { terms = append(terms, e) })
	}
	out := make([]string, 0, len(terms))
	for _, e := range terms {
		s, ok := e.Value.(ast.String)
		if !ok || s == "" {
			return nil, fmt.Errorf("%s: want texts", name)
		}
		out = append(out, string(s))
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: want at least one text", name)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// dur reads a time such as "5s". Absent, it is 0.
func dur(obj ast.Object, name string) (time.Duration, error) {
	if obj.Get(ast.StringTerm(name)) == nil {
		return 0, nil
	}
	s, _ := str(obj, name)
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf(`%s: want a time such as "5s"`, name)
	}
	return d, nil
}

var rateUnits = map[string]time.Duration{"s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

// rate reads {"rate": "60/min", "burst": 10}.
func rate(obj ast.Object) (switchboard.Rate, error) {
	s, _ := str(obj, "rate")
	count, unit, _ := strings.Cut(s, "/")
	n, err := strconv.Atoi(count)
	per := rateUnits[unit]
	if err != nil || strconv.Itoa(n) != count || n < 1 || n > 1_000_000 || per == 0 {
		return switchboard.Rate{}, fmt.Errorf(`rate: want a number of calls in a time (s, min, h or d), such as "60/min"`)
	}
	r := switchboard.Rate{Every: per / time.Duration(n), Burst: 1}
	if t := obj.Get(ast.StringTerm("burst")); t != nil {
		num, ok := t.Value.(ast.Number)
		burst, isInt := num.Int()
		if !ok || !isInt || burst < 1 || burst > 1_000_000 {
			return switchboard.Rate{}, fmt.Errorf("burst: want a number from 1 to 1000000")
		}
		if most := switchboard.MaxEarn / r.Every; burst > int(most) {
			return switchboard.Rate{}, fmt.Errorf("burst: at that rate %d calls take more than ten years to be earned; at most %d", burst, most)
		}
		r.Burst = burst
	}
	return r, nil
}
