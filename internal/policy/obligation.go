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

// obligationMembers lists the obligations and their members besides type. A star marks required
// members.
var obligationMembers = map[string][]string{
	"require_approval": {"who", "expires", "quorum", "standing", "reason"},
	"notify":           {"*who"},
	"enforce_timeout":  {"*timeout"},
	"redact":           {"fields", "detectors"}, // at least one of them
	"rate_limit":       {"*rate", "burst"},
	"log":              {"*level"},
}

// logLevels are the levels of the log obligation, lowest first.
var logLevels = []string{"debug", "info", "warn", "error"}

// addObligation adds one obligation, an object with a type. The strictest of each type counts. An
// error says that the obligation is unknown or malformed.
func addObligation(all *switchboard.Obligations, t *ast.Term) error {
	obj, ok := t.Value.(ast.Object)
	if !ok {
		return fmt.Errorf(`obligation %s: want an object with a type, such as {"type": "log", "level": "info"}`, shortTerm(t))
	}
	kind, _ := stringMember(obj, "type")
	members, ok := obligationMembers[kind]
	if !ok {
		return fmt.Errorf("obligation %s: its type is not one of enforce_timeout, log, notify, rate_limit, redact, require_approval", shortTerm(t))
	}
	for _, k := range obj.Keys() {
		name, _ := k.Value.(ast.String)
		if name != "type" && !slices.Contains(members, string(name)) && !slices.Contains(members, "*"+string(name)) {
			return fmt.Errorf("obligation %s: %s has no member %s", shortTerm(t), kind, shortTerm(k))
		}
	}
	for _, m := range members {
		if name, must := strings.CutPrefix(m, "*"); must && obj.Get(ast.StringTerm(name)) == nil {
			return fmt.Errorf("obligation %s: it lacks %s", shortTerm(t), name)
		}
	}
	if err := putObligation(all, kind, obj); err != nil {
		return fmt.Errorf("obligation %s: %w", shortTerm(t), err)
	}
	return nil
}

func putObligation(all *switchboard.Obligations, kind string, obj ast.Object) error {
	switch kind {
	case "require_approval":
		a := switchboard.Approval{}
		var err error
		if a.Who, err = stringsMember(obj, "who"); err != nil {
			return err
		}
		if a.Expires, err = durationMember(obj, "expires"); err != nil {
			return err
		}
		if a.Quorum, err = quorumMember(obj); err != nil {
			return err
		}
		if t := obj.Get(ast.StringTerm("standing")); t != nil {
			may, ok := t.Value.(ast.Boolean)
			if !ok {
				return errors.New("standing: want true or false")
			}
			a.NoStanding = !bool(may)
		}
		if t := obj.Get(ast.StringTerm("reason")); t != nil {
			if s, ok := t.Value.(ast.String); !ok || s == "" {
				return errors.New("reason: want a text, for the person who is asked")
			}
		}
		all.Approval = combineApprovals(all.Approval, a)
	case "notify":
		who, err := stringsMember(obj, "who")
		if err != nil {
			return err
		}
		all.Notify = union(all.Notify, who)
	case "enforce_timeout":
		d, err := durationMember(obj, "timeout")
		if err != nil {
			return err
		}
		if all.Timeout == 0 || d < all.Timeout {
			all.Timeout = d
		}
	case "redact":
		return putRedact(all, obj)
	case "rate_limit":
		r, err := rateMember(obj)
		if err != nil {
			return err
		}
		all.Rate = combineRates(all.Rate, r)
	case "log":
		level, ok := stringMember(obj, "level")
		if !ok || !slices.Contains(logLevels, level) {
			return fmt.Errorf("level: want one of %s", strings.Join(logLevels, ", "))
		}
		all.Log = higherLevel(all.Log, level)
	}
	return nil
}

func putRedact(all *switchboard.Obligations, obj ast.Object) error {
	fields, err := stringsMember(obj, "fields")
	if err != nil {
		return err
	}
	names, err := stringsMember(obj, "detectors")
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
			return fmt.Errorf("%q is not a JSON pointer into the result, such as /structuredContent/email", f)
		}
	}
	detectors := make([]switchboard.Detector, len(names))
	for i, n := range names {
		detectors[i] = switchboard.Detector(n)
		if !slices.Contains(switchboard.Detectors, detectors[i]) {
			return fmt.Errorf("%q is not a detector; known detectors: %v", n, switchboard.Detectors)
		}
	}
	all.Redact, all.Detect = union(all.Redact, fields), union(all.Detect, detectors)
	return nil
}

// combineRates combines two rates: the longer interval and the smaller burst.
func combineRates(a, b switchboard.Rate) switchboard.Rate {
	if a.Every == 0 || b.Every == 0 {
		return switchboard.Rate{Every: a.Every + b.Every, Burst: a.Burst + b.Burst}
	}
	return switchboard.Rate{Every: max(a.Every, b.Every), Burst: min(a.Burst, b.Burst)}
}

// higherLevel returns the higher of two levels.
func higherLevel(a, b string) string {
	if slices.Index(logLevels, b) > slices.Index(logLevels, a) {
		return b
	}
	return a
}

// combineApprovals combines two approvals: the people who may give both, the shorter time, and the larger quorum.
func combineApprovals(was *switchboard.Approval, a switchboard.Approval) *switchboard.Approval {
	if was == nil {
		return &a
	}
	both := *was
	both.Who = switchboard.ApproversOfBoth(was.Who, a.Who)
	if both.Expires == 0 || a.Expires > 0 && a.Expires < both.Expires {
		both.Expires = a.Expires
	}
	both.Quorum, both.NoStanding = max(both.Quorum, a.Quorum), both.NoStanding || a.NoStanding
	return &both
}

// maxQuorum is the largest quorum. More people than that decide nothing in time.
const maxQuorum = 10

// quorumMember reads how many people must say yes. If the member is missing, it is 0.
func quorumMember(obj ast.Object) (int, error) {
	t := obj.Get(ast.StringTerm("quorum"))
	if t == nil {
		return 0, nil
	}
	num, ok := t.Value.(ast.Number)
	n, isInt := num.Int()
	if !ok || !isInt || n < 1 || n > maxQuorum {
		return 0, fmt.Errorf("quorum: want a number of people, from 1 to %d", maxQuorum)
	}
	return n, nil
}

func union[T ~string](a, b []T) []T {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

func stringMember(obj ast.Object, name string) (string, bool) {
	t := obj.Get(ast.StringTerm(name))
	if t == nil {
		return "", false
	}
	s, ok := t.Value.(ast.String)
	return string(s), ok
}

// stringsMember reads a list or set of texts, or one text. If the member is missing, the result is
// empty.
func stringsMember(obj ast.Object, name string) ([]string, error) {
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

// durationMember reads a duration such as "5s". If the member is missing, it is 0.
func durationMember(obj ast.Object, name string) (time.Duration, error) {
	if obj.Get(ast.StringTerm(name)) == nil {
		return 0, nil
	}
	s, _ := stringMember(obj, name)
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf(`%s: want a time such as "5s"`, name)
	}
	return d, nil
}

var rateUnits = map[string]time.Duration{"s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

// rateMember reads {"rate": "60/min", "burst": 10}.
func rateMember(obj ast.Object) (switchboard.Rate, error) {
	s, _ := stringMember(obj, "rate")
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
		if most := switchboard.MaxRefill / r.Every; burst > int(most) {
			return switchboard.Rate{}, fmt.Errorf("burst: at that rate %d calls take more than ten years to be earned; at most %d", burst, most)
		}
		r.Burst = burst
	}
	return r, nil
}
