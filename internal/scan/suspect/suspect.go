// Package suspect finds what should make people look at the definition of a tool, or should keep the tool out. It is deterministic, and does no I/O. How words look
// says little about what a tool does: a finding is a reason to look, and a definition without findings may attack all the same (design part 14, Words).
//
// A rule is Blocking if it concerns the structure of the text: characters that deceive, and a name that imitates the name of another tool. All other rules are
// Looking. They know the meaning of words by kind (see lexicon), not the phrases of attacks. Each text of the definition is read as it is, and in normal form.
package suspect

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A Tier says what a finding of a rule is good for. The zero value is Looking.
type Tier int

// The tiers.
const (
	Looking  Tier = iota // a person should look
	Blocking             // the definition deceives by its structure
)

// String returns the word of the documents.
func (t Tier) String() string { return [...]string{"looking", "blocking"}[t] }

// A TextRule says what makes a definition suspect.
type TextRule struct {
	ID    string
	Words string // for people
	Tier  Tier

	patterns []string
	unless   string // kinds of words; a sentence that has one of them is not meant
}

// Rules returns all rules.
func Rules() []TextRule { return rules }

// A TextFinding is a text of a definition that a rule has found.
type TextFinding struct {
	Rule  string
	Tier  Tier
	Where string // the way to the text: inputSchema.properties.path.description
	Text  string // the text, or the part that the rule has found, with invisible characters spelt out
}

// Most findings of one definition, and most bytes of the text and of the place of one, before they are spelt out.
const (
	maxFindings = 32
	maxText     = 160
	maxWhere    = 200
)

// Peers are the tools that a definition is compared with.
type Peers struct {
	servers map[string][]switchboard.ServerID // by the name of a tool
	alike   map[string][]switchboard.ToolID   // by skeleton
}

// NewPeers returns the peers with these names.
func NewPeers(tools []switchboard.ToolID) *Peers {
	p := &Peers{servers: map[string][]switchboard.ServerID{}, alike: map[string][]switchboard.ToolID{}}
	for _, t := range tools {
		p.servers[t.Name] = append(p.servers[t.Name], t.Server)
		form := skeleton(t.Name)
		p.alike[form] = append(p.alike[form], t)
	}
	return p
}

// A nameKind says which tool a name in a text belongs to.
type nameKind int

const (
	nameUnknown nameKind = iota
	nameOwn              // a tool of the same server, or a property of the definition
	nameOfPeer           // only tools of other servers
)

func (p *Peers) kindOf(own switchboard.ServerID, name string) nameKind {
	servers := p.servers[name]
	if len(servers) == 0 {
		return nameUnknown
	}
	if slices.Contains(servers, own) {
		return nameOwn
	}
	return nameOfPeer
}

// imitated returns a tool with a name that looks like the name of id and is another one.
func (p *Peers) imitated(id switchboard.ToolID) (switchboard.ToolID, bool) {
	for _, t := range p.alike[skeleton(id.Name)] {
		if t.Name != id.Name {
			return t, true
		}
	}
	return switchboard.ToolID{}, false
}

// A scanner looks at one definition.
type scanner struct {
	reader textReader
	rules  []compiledRule // in the order of rules
	found  []TextFinding
	seen   map[[2]string]bool
}

// A compiledRule has the patterns of a rule. first and last are the classes of their first and last words: a sentence without one of both does not match.
type compiledRule struct {
	patterns            []pattern
	first, last, unless class
}

// compiled are the patterns of all rules.
var compiled = sync.OnceValue(func() *scanner {
	s := &scanner{rules: make([]compiledRule, len(rules))}
	for i, r := range rules {
		c := &s.rules[i]
		for _, text := range r.patterns {
			p := words().compile(text)
			c.patterns = append(c.patterns, p)
			c.first, c.last = c.first.or(p.steps[0].kinds), c.last.or(p.steps[len(p.steps)-1].kinds)
		}
		if r.unless != "" {
			c.unless = words().class(r.unless)
		}
	}
	s.reader.words, s.reader.shapes = words(), words().newShapes()
	return s
})

// Find returns the findings of a tool's definition, in the order of its texts. definition is the tool's object in tools/list. A finding that a rule has at the
// same place twice is listed once.
func Find(id switchboard.ToolID, definition []byte, peers *Peers) []TextFinding {
	s := &scanner{rules: compiled().rules, reader: compiled().reader, seen: map[[2]string]bool{}}
	own := properties(definition)
	s.reader.known = func(name string) nameKind {
		if name == id.Name || own[name] {
			return nameOwn
		}
		return peers.kindOf(id.Server, name)
	}
	if t, ok := peers.imitated(id); ok {
		s.add(ruleName, textPlace{"name"}, id.Name+" looks like "+t.Name+" of the server "+string(t.Server))
	}
	eachText(definition, nil, s.look)
	s.compareHints(id.Name, definition)
	return s.found
}

// properties returns the names of the properties in the schema of a definition's arguments.
func properties(definition []byte) map[string]bool {
	own := map[string]bool{}
	schema, _ := wire.Field(definition, "inputSchema")
	if len(schema) == 0 || schema[0] != '{' {
		return own
	}
	eachText(schema, nil, func(at textPlace, text string, isName bool) {
		if isName && at.isProperty() {
			own[text] = true
		}
	})
	return own
}

func (s *scanner) add(rule string, at textPlace, text string) {
	if len(s.found) == maxFindings {
		return
	}
	where := Spell(cut(at.begin(maxWhere), maxWhere))
	if s.seen[[2]string{rule, where}] {
		return
	}
	s.seen[[2]string{rule, where}] = true
	tier := Looking
	for _, r := range rules {
		if r.ID == rule {
			tier = r.Tier
		}
	}
	s.found = append(s.found, TextFinding{rule, tier, where, Spell(cut(text, maxText))})
}

// cut returns the beginning of a text, in whole characters.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "…"
}

// look applies the rules to one text.
func (s *scanner) look(at textPlace, text string, isName bool) {
	if !isPlain(text) {
		s.lookAtCharacters(at, text)
	}
	if len(text) < 4 {
		return
	}
	text = normalize(text)
	if isName || !strings.ContainsAny(text, " \n") && len(text) < 100 && isIdentifier(text) {
		if isName && at.isProperty() && collects(text) {
			s.add(ruleTalk, at, text)
		}
		text = divideName(text)
	}
	if !strings.ContainsAny(text, " \n") && strings.ContainsAny(text, "./_") && isSecretPlace(text) && (at.below("default") || at.below("enum") || at.below("const") || at.below("examples")) {
		s.add(rulePlace, at, text)
	}
	s.lookAtWords(at, text, "")
	s.decode(at, text)
}

// lookAtWords applies the patterns of the rules. If as is not empty, it is the rule that has led to the text.
func (s *scanner) lookAtWords(at textPlace, text, as string) {
	s.reader.sentences(text, func(words []token, any class) {
		if any == (class{}) {
			return
		}
		for i := range s.rules {
			r := &s.rules[i]
			if r.unless.meets(any) || !r.first.meets(any) || !r.last.meets(any) {
				continue
			}
			for j := range r.patterns {
				if from, to, ok := r.patterns[j].find(words, any); ok {
					rule := rules[i].ID
					if as != "" {
						rule = as
					}
					s.add(rule, at, text[words[from].from:words[to-1].to])
					break
				}
			}
		}
	})
}

// lookAtCharacters finds characters that deceive. scan.Clean decides which ones stay.
func (s *scanner) lookAtCharacters(at textPlace, text string) {
	for i, r := range text {
		if unicode.Is(unicode.Co, r) {
			s.add(rulePrivate, at, around(text, i))
			break
		}
	}
	if word, mixed := hasMixedWord(text); mixed {
		s.add(ruleMixed, at, word)
	}
	told := map[string]bool{} // a text may have millions of them
	for i, r := range scan.Removed(text) {
		if rule := ruleOfHidden(r); !told[rule] {
			told[rule] = true
			s.add(rule, at, around(text, i))
		}
	}
}

// around returns the part of a text around the byte i.
func around(text string, i int) string {
	from := max(0, i-30)
	for from < i && !utf8.RuneStart(text[from]) {
		from++
	}
	return cut(text[from:], 80)
}

// ruleOfHidden returns the rule of a character that scan.Clean removes.
func ruleOfHidden(r rune) string {
	switch {
	case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return ruleBidi
	case r >= 0xe0000 && r <= 0xe007f:
		return ruleTags
	case r < ' ', r >= 0x7f && r <= 0x9f, r == 0x2028, r == 0x2029:
		return ruleControl
	}
	return ruleWidth
}

// talkNames are names of properties that collect what was said, or ask for the model: all words of one line.
var talkNames = []string{
	"conversation history", "chat history", "full conversation", "conversation transcript", "chat transcript", "conversation log", "user conversation",
	"llm name", "llm model", "calling model", "model calling", "caller model", "agent model", "assistant model", "your prompt", "original prompt", "full prompt", "chain thought",
	"previous messages", "prior messages", "all messages", "hidden context", "agent context",
}

// collects reports whether the name of a property asks for the conversation or the model.
func collects(name string) bool {
	name = divideName(name)
	if !strings.Contains(name, " ") {
		return false
	}
	has := map[string]bool{}
	for word := range strings.FieldsSeq(strings.ToLower(name)) {
		has[word] = true
	}
	for _, line := range talkNames {
		all := true
		for word := range strings.FieldsSeq(line) {
			all = all && has[word]
		}
		if all {
			return true
		}
	}
	return false
}

// divideName returns the words of a name like read_file or readFile, with spaces between them.
func divideName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '_' || c == '-':
			c = ' '
		case i > 0 && 'A' <= c && c <= 'Z' && 'a' <= name[i-1] && name[i-1] <= 'z':
			b.WriteByte(' ')
		}
		b.WriteByte(c)
	}
	return b.String()
}

// changing are the verbs of names that change something for good, or that let something out of the house.
var changing = map[string]bool{
	"delete": true, "remove": true, "drop": true, "destroy": true, "purge": true, "erase": true, "wipe": true, "truncate": true, "kill": true, "terminate": true, "uninstall": true,
	"send": true, "pay": true, "transfer": true, "charge": true, "refund": true, "buy": true, "sell": true, "publish": true, "revoke": true, "execute": true, "write": true, "overwrite": true,
}

// compareHints finds a hint that promises less than the tool's name says.
func (s *scanner) compareHints(name string, definition []byte) {
	raw, _ := wire.Field(definition, "annotations")
	var hints struct {
		ReadOnly    *bool `json:"readOnlyHint"`
		Destructive *bool `json:"destructiveHint"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &hints) != nil || hints.ReadOnly == nil || !*hints.ReadOnly {
		return
	}
	first, _, _ := strings.Cut(strings.ToLower(divideName(name)), " ")
	if changing[first] {
		s.add(ruleHint, textPlace{"annotations", "readOnlyHint"}, "readOnlyHint is true, and the name begins with "+first)
	}
}
