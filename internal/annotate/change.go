package annotate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits of what is read to find signs of change. A definition that is larger is never readonly.
const (
	maxTextWords  = 1000 // of a description
	maxDeepParams = 512  // with those inside of others
	maxDepth      = 12   // of a schema
)

// changeWords say that a call changes something, wherever in a name or a title they stand.
var changeWords = wordSet("cleanup clear create delete destroy drop edit erase exec execute insert kill modify mutate nuke overwrite patch prune purge put remove replace save set shred terminate truncate uninstall update upload upsert wipe write")

// tellingWords say what a tool does, anywhere in a description. passiveWords do so behind a form of "be".
var (
	tellingWords = wordSet("alters appends creates deletes destroys edits erases executes inserts modifies overwrites publishes purges removes replaces revokes saves sends terminates wipes writes")
	passiveWords = wordSet("deleted destroyed erased modified overwritten purged removed revoked saved wiped")
	beWords      = wordSet("is are be been gets get being")
	notWords     = wordSet("cannot not never isn aren")
)

// changingPhrases say, anywhere in a description, that a call changes something.
var changingPhrases = []string{
	"cannot be undone", "can not be undone", "irreversible", "permanently", "destructive", "will delete", "will overwrite", "this deletes", "this modifies",
	"this creates", "this updates", "will create", "will modify", "will update", "will be deleted", "will be overwritten", "will be modified", "saves to", "saved to", "and updates", "side effect",
	"删除", "削除", "삭제",
}

// Names of parameters that can change something: whole ones, and words that begin one.
var (
	writeParams     = wordSet("outputpath output_path outputfile output_file output_dir outputdir save_path savepath save_to filename file_name overwrite force dry_run dryrun content contents body payload command code script sql cypher statement new_value newvalue commit_message message")
	writeParamWords = wordSet("clear create delete drop erase execute insert overwrite purge remove save upload wipe write")
	writeMethods    = wordSet("delete patch post put")
)

// oppose adds a sign against readonly.
func (s *readonlySigns) oppose(where, format string, args ...any) {
	if sign := where + ": " + fmt.Sprintf(format, args...); !slices.Contains(s.against, sign) {
		s.against = append(s.against, sign)
	}
}

// missed adds a part that was not read whole.
func (s *readonlySigns) missed(where, says string) {
	if sign := where + ": " + says; !slices.Contains(s.unread, sign) {
		s.unread = append(s.unread, sign)
	}
}

// collectChanges finds the signs of change that are stronger than what a tool says in its first words.
func (r *toolReading) collectChanges() {
	for _, w := range r.words {
		if changeWords[w] {
			r.readonly.oppose("name", "%q changes something", w)
		}
	}
	for i, w := range r.title {
		if s, ok := lookupVerb(w, i == 0); changeWords[w] || i == 0 && ok && s.strength == 3 && changes(s.verb) {
			r.readonly.oppose("title", "%q changes something", w)
		}
	}
	for _, p := range changingPhrases {
		if strings.Contains(r.text, p) {
			r.readonly.oppose("description", "%q", p)
		}
	}
	words := splitWords(r.text, maxTextWords)
	if len(words) == maxTextWords {
		r.readonly.missed("description", "it has too many words to be read whole")
	}
	for i, w := range words {
		passive := passiveWords[w] && i > 0 && beWords[words[i-1]] && (i == 1 || !notWords[words[i-2]])
		if tellingWords[w] || passive {
			r.readonly.oppose("description", "%q", w)
		}
	}
	deep := 0
	r.findChangingParams(r.schema, "", 0, &deep)
}

// findChangingParams finds parameters, also inside of others, and values of them that can change something.
func (r *toolReading) findChangingParams(schema []byte, param string, depth int, seen *int) {
	if *seen > maxDeepParams || depth > maxDepth {
		r.readonly.missed("parameters", "they are too many, or too deep, to be read whole")
		return
	}
	for keyword, value := range wire.Members(schema) {
		switch {
		case keyword == "properties":
			for name, inner := range wire.Members(value) {
				*seen++
				if name = cleanText(name, maxNameBytes); isChangingParam(name) {
					r.readonly.oppose("parameters", "%q can change something", name)
				}
				r.findChangingParams(inner, name, depth+1, seen)
			}
		case keyword == "const":
			r.opposeValue(param, value)
		case keyword == "enum":
			for one := range wire.Elements(value) {
				r.opposeValue(param, one)
			}
		case len(value) > 0 && value[0] == '{':
			r.findChangingParams(value, param, depth+1, seen)
		case len(value) > 0 && value[0] == '[':
			for one := range wire.Elements(value) {
				if len(one) > 0 && one[0] == '{' {
					r.findChangingParams(one, param, depth+1, seen)
				}
			}
		}
	}
}

func isChangingParam(name string) bool {
	words := splitWords(name, maxNameWords)
	return writeParams[strings.ToLower(name)] || len(words) > 0 && writeParamWords[words[0]]
}

// opposeValue adds a sign against readonly if the value chooses an action that changes something, as "delete" does.
func (r *toolReading) opposeValue(param string, raw []byte) {
	value, ok := wire.String(raw)
	if !ok {
		return
	}
	word := strings.ToLower(cleanText(value, maxNameBytes))
	s, known := verbWords[word]
	strong := known && s.strength == 3 && changes(s.verb) && s.verb != switchboard.Notify
	method := writeMethods[word] && slices.Contains(splitWords(param, maxNameWords), "method")
	if strong || method || changeWords[word] {
		r.readonly.oppose("parameters", "%q can be %q", param, word)
	}
}
