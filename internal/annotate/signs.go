package annotate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The factors of a verb's word in a name, by its position, and in a sentence.
const (
	firstFactor    = 3
	lastFactor     = 2
	middleFactor   = 1
	sentenceWeight = 2
)

// messageWords are what "send" sends to people. sentWords are what it sends to programs.
var (
	sendingWords = wordSet("send post reply forward publish broadcast notify email deliver")
	messageWords = wordSet("message messages email emails mail sms notification notifications dm text chat alert thread reply media image file voice location contact")
	sentWords    = wordSet("command key keys keystroke request event transaction tx token tokens eth usdc transfer data input payload signal metric metrics")
	fillerWords  = wordSet("this tool the a an to use used using allows allow you can will for it mcp lets let user users api by when easily helps please async async function perform performs tools quickly")
	conjunctions = wordSet("and or then")
	numberWords  = wordSet("number numbers sum integer integers digits two")
	mathWords    = wordSet("add sum subtract multiply divide minus plus")
	deleteWords  = wordSet("delete remove purge destroy drop erase wipe truncate revoke terminate uninstall cancel unlink detach rm kill prune flush")
	codeWords    = wordSet("code command script shell python javascript terminal notebook bash powershell cell")
)

// foreignVerbs are verbs of languages that write no spaces between words, and of Korean.
var foreignVerbs = []struct {
	verb  switchboard.Verb
	texts []string
}{
	{switchboard.Read, []string{"获取", "查询", "查看", "列出", "读取", "返回", "取得", "조회"}},
	{switchboard.Search, []string{"搜索", "检索", "查找", "検索", "검색"}},
	{switchboard.Write, []string{"删除", "创建", "更新", "添加", "修改", "写入", "作成", "保存"}},
	{switchboard.Execute, []string{"执行", "运行", "生成", "実行", "操作", "로그인"}},
	{switchboard.Reason, []string{"分析", "计算", "检测"}},
	{switchboard.Notify, []string{"发送", "送信", "通知"}},
}

// foreignBytes is how far into a sentence a verb of foreignVerbs may stand.
const foreignBytes = 40

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		set[w] = true
	}
	return set
}

// changes reports whether calls with the verb change something.
func changes(v switchboard.Verb) bool {
	return v == switchboard.Write || v == switchboard.Execute || v == switchboard.Notify
}

// lookupVerb returns what the word says about verbs. In the middle of a name a plural is a noun.
func lookupVerb(word string, first bool) (wordSign, bool) {
	if s, ok := verbWords[word]; ok {
		return s, true
	}
	if one := singular(word); first && one != word {
		s, ok := verbWords[one]
		return s, ok
	}
	return wordSign{}, false
}

func (r *toolReading) voteVerb(verb switchboard.Verb, weight int, where, format string, args ...any) {
	r.verbs = append(r.verbs, verbVote{verb, weight, where, fmt.Sprintf(format, args...)})
}

// readonlySigns are what the places say about whether a call changes something.
type readonlySigns struct {
	places  []string // that speak for a call that changes nothing
	against []string
	unread  []string // what was too long to be read whole: anything may stand there
}

// add notes what a word of a place says. A neutral word says nothing.
func (s *readonlySigns) add(where string, verb switchboard.Verb, word string) {
	if changes(verb) {
		s.against = append(s.against, fmt.Sprintf("%s: %q changes something", where, word))
	} else if !slices.Contains(s.places, where) && !neutralWords[singular(word)] && !neutralWords[word] {
		s.places = append(s.places, where)
	}
}

// voteVerbs collects the signs for verbs. Of the name, only words that are not common to the server count.
func (r *toolReading) voteVerbs(common map[string]bool) {
	for i, w := range r.words {
		if common[w] && (i < len(r.words)-1 || len(r.name) > 0) {
			continue
		}
		r.name = append(r.name, w)
	}
	r.voteNameVerbs()
	r.voteSentenceVerbs()
	r.voteHintVerbs()
	r.voteParamVerbs()
	r.collectChanges()
	spoken := func(v verbVote) bool { return v.where == "name" || v.where == "description" || changes(v.verb) }
	if len(r.readonly.against) == 0 && !slices.ContainsFunc(r.verbs, spoken) {
		r.voteVerb(switchboard.Read, leastVerb, "name", "no word says that it does anything but read")
	}
}

// isArithmetic reports whether the tool calculates with the numbers that it gets.
func (r *toolReading) isArithmetic() bool {
	begins := func(words []string) bool { return len(words) > 0 && mathWords[singular(words[0])] }
	if !begins(r.name) && !begins(r.sentence) {
		return false
	}
	letters := 0
	for _, p := range r.params {
		if len(p.name) == 1 || strings.HasPrefix(p.name, "num") {
			letters++
		}
	}
	return letters >= 2 || slices.ContainsFunc(r.sentence, func(w string) bool { return numberWords[w] })
}

// voteNameVerbs reads the verbs in the name.
func (r *toolReading) voteNameVerbs() {
	lead := wordSign{}
	for i, w := range r.name {
		s, ok := lookupVerb(w, i == 0)
		if !ok {
			continue
		}
		factor := middleFactor
		switch {
		case i == 0:
			factor = firstFactor
		case i == len(r.name)-1:
			factor = lastFactor
		}
		if s.strength == 1 {
			factor = min(factor, lastFactor)
		}
		// After a verb that only reads, the other words are what it reads, unless a conjunction joins them.
		joined := i > 0 && conjunctions[r.name[i-1]]
		if lead.strength > 2 && !changes(lead.verb) && changes(s.verb) && !joined {
			continue
		}
		r.voteVerb(s.verb, s.strength*factor, "name", "%q says %s", w, s.verb)
		if s.strength > 1 {
			r.readonly.add("name", s.verb, w)
		}
		if lead.strength < 2 && lead.strength < s.strength {
			lead = s
		}
	}
	r.voteSending()
}

// voteSending finds a name such as "send_email". What is sent says whether a person gets it or a program.
func (r *toolReading) voteSending() {
	sends, message, sent := false, false, false
	for i, w := range r.name {
		switch {
		case sendingWords[w] && !sends && (i == 0 || i == len(r.name)-1 || w == "send"):
			sends = true
		case messageWords[w]:
			message = true
		case sentWords[w]:
			sent = true
		}
	}
	switch {
	case !sends:
	case sent:
		r.voteVerb(switchboard.Execute, 7, "name", "it sends something to a program")
	case message:
		r.voteVerb(switchboard.Notify, 8, "name", "it sends a message")
	}
}

// voteSentenceVerbs reads the verbs in the first sentence of the description.
func (r *toolReading) voteSentenceVerbs() {
	for _, f := range foreignVerbs {
		for _, text := range f.texts {
			if i := strings.Index(r.raw, text); i >= 0 && i < foreignBytes {
				r.voteVerb(f.verb, 5, "description", "%q says %s", text, f.verb)
				r.readonly.add("description", f.verb, text)
			}
		}
	}
	led, at := false, 0
	for i, w := range r.sentence {
		if fillerWords[w] {
			continue
		}
		at++
		s, ok := lookupVerb(w, true)
		joined := i > 0 && conjunctions[r.sentence[i-1]]
		switch {
		case !ok:
		case at == 1 && s.strength > 1:
			led = true
			r.voteVerb(s.verb, s.strength*sentenceWeight, "description", "it begins with %q, which says %s", w, s.verb)
			r.readonly.add("description", s.verb, w)
		case at <= 8 && s.strength == 3 && (!led || joined):
			r.voteVerb(s.verb, sentenceWeight, "description", "%q says %s", w, s.verb)
			if changes(s.verb) {
				r.readonly.add("description", s.verb, w)
			}
		case joined && s.strength > 1 && changes(s.verb):
			r.readonly.add("description", s.verb, w)
		}
	}
}

// voteHintVerbs reads the annotations. A server can write anything there, so they weigh less than a name.
func (r *toolReading) voteHintVerbs() {
	h := r.hints
	for _, v := range switchboard.Verbs {
		if h.readOnly != nil && *h.readOnly == !changes(v) {
			r.voteVerb(v, 3, "annotations", "readOnlyHint is %t", *h.readOnly)
		}
	}
	switch {
	case isTrue(h.readOnly):
		r.readonly.places = append(r.readonly.places, "annotations")
	case h.readOnly != nil:
		r.readonly.against = append(r.readonly.against, "annotations: readOnlyHint is false")
	}
	if isTrue(h.destructive) {
		r.readonly.against = append(r.readonly.against, "annotations: destructiveHint is true")
	}
	if !isTrue(h.readOnly) && isTrue(h.destructive) {
		r.voteVerb(switchboard.Write, 2, "annotations", "destructiveHint is true")
	}
	if h.readOnly != nil && !*h.readOnly && isTrue(h.idempotent) {
		r.voteVerb(switchboard.Write, 1, "annotations", "idempotentHint is true")
	}
}

func isTrue(hint *bool) bool { return hint != nil && *hint }

// voteParamVerbs reads the names of the parameters.
func (r *toolReading) voteParamVerbs() {
	has := func(names string) string {
		i := slices.IndexFunc(r.params, func(p param) bool { return wordIn(strings.ToLower(p.name), names) })
		if i < 0 {
			return ""
		}
		return r.params[i].name
	}
	if p := has("query q keyword keywords search search_term searchterm search_query"); p != "" {
		r.voteVerb(switchboard.Search, 2, "parameters", "%q is what to search for", p)
	}
	if to, what := has("to recipient recipients channel channel_id chat_id chatid phone"), has("subject body text message"); to != "" && what != "" {
		r.voteVerb(switchboard.Notify, 3, "parameters", "%q and %q make a message", to, what)
	}
	if p := has("page limit offset cursor per_page page_size pagesize"); p != "" {
		r.voteVerb(switchboard.Read, 1, "parameters", "%q divides a list", p)
	}
	if p := has("selector element"); p != "" {
		r.voteVerb(switchboard.Execute, 1, "parameters", "%q is what to act on", p)
	}
	if p := has("command code script"); p != "" {
		r.voteVerb(switchboard.Execute, 3, "parameters", "%q is to be executed", p)
	}
	if p := has("content contents value new_value data"); p != "" {
		r.voteVerb(switchboard.Write, 1, "parameters", "%q is what to write", p)
	}
}

func wordIn(word, words string) bool {
	for w := range strings.FieldsSeq(words) {
		if w == word {
			return true
		}
	}
	return false
}

// addTypicalVerbs adds what words mean for tools that act on the subject.
func (r *toolReading) addTypicalVerbs(subject int, t *terms) {
	is := func(name switchboard.Resource) bool { return t.means(subject, name) }
	first := ""
	if len(r.name) > 0 {
		first = r.name[0]
	}
	switch {
	case is("compute") && r.isArithmetic():
		r.voteVerb(switchboard.Reason, 20, "parameters", "they are numbers")
	case is("browser") && slices.ContainsFunc(r.name, func(w string) bool {
		return wordIn(w, "select type fill go open close hover drag choose upload handle resize forward evaluate")
	}):
		r.voteVerb(switchboard.Execute, 12, "name", "it acts on a page")
	case (is("chat") || is("email")) && sendingWords[first] && first != "notify":
		r.voteVerb(switchboard.Notify, 4, "name", "%q sends a message here", first)
	}
}

// constrain returns the constraints to suggest, sorted.
func (r *toolReading) constrain(verb switchboard.Verb, subject int, t *terms) (out []switchboard.Constraint) {
	if !changes(verb) {
		changing := slices.ContainsFunc(r.verbs, func(v verbVote) bool { return changes(v.verb) })
		s := &r.readonly
		if !changing && len(s.against)+len(s.unread) == 0 && slices.Contains(s.places, "name") && len(s.places) >= 2 {
			out = append(out, switchboard.ReadOnly)
		}
		return out
	}
	ask := verb == switchboard.Notify
	for i, w := range r.name {
		ask = ask || deleteWords[w] && (i == 0 || i == len(r.name)-1)
		ask = ask || verb == switchboard.Execute && codeWords[w]
	}
	if ask || t.means(subject, "payments") && verb == switchboard.Write {
		out = append(out, switchboard.HumanInTheLoop)
	}
	return out
}

// contradictions returns the signs that cannot both be true.
func (r *toolReading) contradictions(verb switchboard.Verb) (out []string) {
	h := r.hints
	if isTrue(h.readOnly) {
		if isTrue(h.destructive) {
			out = append(out, "annotations: readOnlyHint and destructiveHint are both true")
		}
		for _, a := range r.readonly.against {
			if !strings.HasPrefix(a, "parameters:") && !strings.HasPrefix(a, "annotations:") {
				out = append(out, "readOnlyHint is true, but "+a)
			}
		}
	}
	if h.readOnly != nil && !*h.readOnly && !changes(verb) && len(r.name) > 0 {
		out = append(out, fmt.Sprintf("readOnlyHint is false, but the other signs say %s", verb))
	}
	return out
}

// collectSigns adds the signs for and against to the suggestion.
func (s *serverReading) collectSigns(out *ToolSuggestion, i int, verb switchboard.Verb, subject int, term switchboard.Resource) {
	t := s.tools[i]
	seen := map[string]int{}
	add := func(to *[]Sign, sign Sign) {
		if sign.Weight > 0 {
			*to = append(*to, sign)
		}
	}
	for _, v := range t.verbs {
		key := v.where + v.says
		if v.verb == verb {
			seen[key] = 1
			add(&out.For, Sign{v.where, v.says, v.weight})
		}
	}
	for _, v := range t.verbs {
		if key := v.where + v.says; v.verb != verb && seen[key] == 0 {
			seen[key] = 1
			add(&out.Against, Sign{v.where, v.says, v.weight})
		}
	}
	for _, v := range slices.Concat(s.name, t.votes) {
		if v.subject == subject {
			add(&out.For, Sign{v.where, fmt.Sprintf("%q says %s", v.word, term), v.weight})
		}
	}
	add(&out.For, Sign{"other tools", fmt.Sprintf("they say %s", term), s.othersWeight(i, subject)})
	if !changes(verb) {
		for _, a := range slices.Concat(t.readonly.against, t.readonly.unread) {
			where, says, _ := strings.Cut(a, ": ")
			out.Against = append(out.Against, Sign{where, says + ", so it is not readonly", 1})
		}
	}
	heaviest := func(a, b Sign) int {
		return cmp.Or(-cmp.Compare(a.Weight, b.Weight), cmp.Compare(a.Where, b.Where), cmp.Compare(a.Says, b.Says))
	}
	slices.SortFunc(out.For, heaviest)
	slices.SortFunc(out.Against, heaviest)
}
