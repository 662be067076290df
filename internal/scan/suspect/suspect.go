// Package suspect finds what should make people look at the definition of a tool, or should keep the tool out. It is deterministic, and does no I/O. How words look
// says little about what a tool does: a finding is a reason to look, and a definition without findings may attack all the same.
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

	Attack   string // a description that it finds, or a definition
	Harmless string // one that looks alike and is not found

	patterns []string
	excuses  []string // patterns; a sentence that matches one of them is not meant
	reported bool     // a text that a word of detection governs is not meant: a detector's description says what it detects
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

// Most findings of one definition in each tier, and most bytes of the text and of the place of one, before they are spelt out.
const (
	maxFindings = 16
	maxText     = 160
	maxWhere    = 200
)

// minText is the number of bytes of the shortest text with words that say anything.
const minText = 4

// A scanner looks at one definition.
type scanner struct {
	reader   textReader
	matching *matching
	pending  []match // in the sentence that is being read
	found    []TextFinding
	counts   [Blocking + 1]int // findings by tier
	hits     int               // findings, also those that are not listed
	seen     map[[2]string]bool
	clean    map[string]uint8 // the kinds of places at which a text, in its own spelling, has no findings, as bits; schemas repeat the same texts again and again

	// The names of the definition's own properties are read when a match first depends on them: nearly no definition needs them.
	own     map[string]bool
	readOwn func() map[string]bool
	again   bool // the text must be read again, since the names are known now
}

// A match is a pattern of a rule that has matched.
type match struct {
	rule     int
	from, to int // bytes of the text
	pattern  *pattern
}

// theLexis is what all scanners share.
var theLexis = sync.OnceValue(newLexis)

// matchings are matchings that no scanner uses. Each has 10 KiB, more than the rest of a scanner.
var matchings = sync.Pool{New: func() any { return newMatching(theLexis().machine) }}

// takeMatching returns a matching that has matched nothing.
func takeMatching() *matching {
	m := matchings.Get().(*matching)
	if m.word > mostWords {
		m = newMatching(m.m)
	}
	m.endSentence()
	return m
}

// Find returns the findings of a tool's definition, in the order of its texts. definition is the tool's object in tools/list. A finding that a rule has at the
// same place twice is listed once.
func Find(id switchboard.ToolID, definition []byte, peers *Peers) []TextFinding {
	l := theLexis()
	s := &scanner{matching: takeMatching(), seen: map[[2]string]bool{}, clean: make(map[string]uint8, len(definition)/128)}
	defer matchings.Put(s.matching)
	s.readOwn = func() map[string]bool { return properties(memberOf(definition, "inputSchema")) }
	s.reader = textReader{lexis: l, known: func(name string) nameKind {
		if name == id.Name || s.own[name] {
			return nameOwn
		}
		return peers.kindOf(id.Server, name)
	}}
	if t, ok := peers.imitated(id); ok {
		s.add(ruleName, textPlace{"name"}, id.Name+" looks like "+t.Name+" of the server "+string(t.Server))
	}
	if t, ok := peers.cloned(id, definition); ok {
		s.add(ruleClone, textPlace{"description"}, id.Name+" repeats "+t.ID.Name+" of the server "+string(t.ID.Server)+", for which the operator vouches")
	}
	eachText(string(definition), func(at textPlace, spelling string, isName bool) {
		kind, looks := at.kind(isName), glance(spelling)
		if len(spelling) < minText && looks&(unusual|escaped) == 0 {
			return
		}
		clean := s.clean[spelling]
		if clean&(1<<kind) != 0 {
			return
		}
		text := spelling
		if looks&escaped != 0 {
			text = unquote(spelling)
			looks = glance(text)
		}
		before := s.hits
		if s.look(at, text, kind, looks); s.hits == before {
			s.clean[spelling] = clean | 1<<kind
		}
	})
	s.compareHints(id.Name, definition)
	return s.found
}

// memberOf returns the value of a member of an object; nil if it has none.
func memberOf(object []byte, member string) (value []byte) {
	for name, v := range wire.MembersAsBytes(object) {
		if string(name) == member {
			value = v
		}
	}
	return value
}

// properties returns the names of the properties in a schema.
func properties(schema []byte) map[string]bool {
	own := map[string]bool{}
	if len(schema) == 0 || schema[0] != '{' {
		return own
	}
	eachText(string(schema), func(at textPlace, _ string, isName bool) {
		if isName && at.isProperty() {
			own[at[len(at)-1]] = true
		}
	})
	return own
}

func (s *scanner) add(rule string, at textPlace, text string) {
	s.hits++
	tier := Looking
	for _, r := range rules {
		if r.ID == rule {
			tier = r.Tier
		}
	}
	if s.counts[tier] == maxFindings {
		return
	}
	where := scan.Spell(cut(at.begin(), maxWhere))
	if s.seen[[2]string{rule, where}] {
		return
	}
	s.seen[[2]string{rule, where}] = true
	s.counts[tier]++
	s.found = append(s.found, TextFinding{rule, tier, where, scan.Spell(cut(text, maxText))})
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

// look applies the rules to one text, of which looks is a glance.
func (s *scanner) look(at textPlace, text string, kind placeKind, looks textLooks) {
	if looks&unusual != 0 {
		s.lookAtCharacters(at, text)
	}
	if len(text) < minText {
		return
	}
	if looks&unusual != 0 {
		text = normalize(text)
		looks = glance(text)
	}
	single := looks&spaced == 0
	if single && kind == givenValue && strings.ContainsAny(text, "./_") && isSecretPlace(text) {
		s.add(rulePlace, at, text)
	}
	if kind == propertyName || kind == memberName || single && len(text) < 100 && isIdentifier(text) {
		divided := divideName(text)
		if kind == propertyName && collects(divided) {
			s.add(ruleTalk, at, text)
		}
		text = divided
	}
	s.lookAtWords(at, text, "")
	s.decode(at, text)
}

// lookAtWords applies the patterns of the rules. If as is not empty, it is the rule that has led to the text.
func (s *scanner) lookAtWords(at textPlace, text, as string) {
	begin, last := -1, 0 // of the sentence
	matched := func(p *pattern, first mark) {
		if p.asksForNames && s.own == nil {
			s.again = true
		}
		m := match{p.rule, int(first.from), last, p}
		switch i := slices.IndexFunc(s.pending, func(m match) bool { return m.rule == p.rule }); {
		case i < 0:
			s.pending = append(s.pending, m)
		case p.excuses:
			s.pending[i] = m
		case !s.pending[i].pattern.excuses && m.from <= s.pending[i].to: // both are one finding
			s.pending[i].from, s.pending[i].to = min(m.from, s.pending[i].from), m.to
		}
	}
	read := func() {
		s.reader.read(text, func(e *lexisEntry, from, to int) {
			if begin < 0 {
				begin = from
				s.matching.next(s.reader.lexis.sentenceBegin, from, false, matched)
			}
			last = to
			s.matching.next(s.reader.asKey(e), from, endsClause(text[from:to]), matched)
		}, func() {
			s.matching.next(s.reader.lexis.sentenceEnd, last, false, matched)
			s.matching.endSentence()
			for _, m := range s.pending {
				if s.again || m.pattern.excuses || rules[m.rule].reported && s.reader.lexis.isReported(text[begin:m.from]) {
					continue
				}
				rule := rules[m.rule].ID
				if as != "" {
					rule = as
				}
				s.add(rule, at, text[m.from:m.to])
			}
			s.pending, begin = s.pending[:0], -1
		})
	}
	if read(); s.again {
		s.own, s.again = s.readOwn(), false
		read()
	}
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

// talkNames are names of properties that collect what was said, or ask for the model: all words of one of them.
var talkNames = []string{
	"conversation history", "chat history", "full conversation", "conversation transcript", "chat transcript", "conversation log", "user conversation",
	"llm name", "llm model", "calling model", "caller model", "agent model", "assistant model", "your prompt", "original prompt", "full prompt", "chain thought",
	"previous messages", "prior messages", "all messages", "hidden context", "agent context",
}

// talkWords gives each word of talkNames a bit. talkMasks are the bits of each name.
var talkWords, talkMasks = func() (map[string]uint64, []uint64) {
	bits, masks := map[string]uint64{}, []uint64{}
	for _, name := range talkNames {
		mask := uint64(0)
		for word := range strings.FieldsSeq(name) {
			if bits[word] == 0 {
				bits[word] = 1 << len(bits)
			}
			mask |= bits[word]
		}
		masks = append(masks, mask)
	}
	return bits, masks
}()

// talkFilter has a bit for each length of one of talkWords, by its first byte.
var talkFilter = func() (all [32]uint64) {
	for word := range talkWords {
		all[word[0]%32] |= 1 << len(word)
	}
	return all
}()

// collects reports whether the name of a property, divided into words, asks for the conversation or the model.
func collects(name string) bool {
	var has uint64
	for rest := name; rest != ""; {
		var word string
		word, rest, _ = strings.Cut(rest, " ")
		if word == "" || talkFilter[word[0]%32]>>len(word)&1 == 0 {
			continue
		}
		var lower [len("conversation")]byte
		for i := range len(word) {
			lower[i] = word[i] | ' '
		}
		has |= talkWords[string(lower[:len(word)])]
	}
	return has != 0 && slices.ContainsFunc(talkMasks, func(mask uint64) bool { return has&mask == mask })
}

// divideName returns the words of a name like read_file or readFile, with spaces between them.
func divideName(name string) string {
	parts := false
	for i := range len(name) {
		c := name[i]
		if c == '_' || c == '-' || i > 0 && byteKinds[c] == capitalByte && byteKinds[name[i-1]] == smallByte {
			parts = true
			break
		}
	}
	if !parts {
		return name
	}
	var b strings.Builder
	b.Grow(len(name) + 8)
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
	first, _, _ := strings.Cut(strings.ToLower(divideName(name)), " ")
	if !changing[first] {
		return
	}
	var hints struct {
		ReadOnly    *bool `json:"readOnlyHint"`
		Destructive *bool `json:"destructiveHint"`
	}
	if annotations := memberOf(definition, "annotations"); len(annotations) > 0 && json.Unmarshal(annotations, &hints) == nil && hints.ReadOnly != nil && *hints.ReadOnly {
		s.add(ruleHint, textPlace{"annotations", "readOnlyHint"}, "readOnlyHint is true, and the name begins with "+first)
	}
}
