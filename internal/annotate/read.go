package annotate

import (
	"maps"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits of the text that is read from a definition. The rest is ignored.
const (
	maxNameBytes     = 256
	maxNameWords     = 24
	maxTextBytes     = 4 << 10 // of a description
	maxSentenceBytes = 400
	maxSentenceWords = 60
	maxParams        = 64
)

// A toolReading is what was read from the definition of one tool.
type toolReading struct {
	tool     DefinedTool
	words    []string // of the name
	title    []string // the words of the name for people
	sentence []string // the words of the first sentence
	raw      string   // the first sentence
	text     string   // the beginning of the description, in small letters
	params   []param
	schema   []byte   // of the parameters
	results  []string // the words of the names in the results
	hints    hints

	verbs    []verbVote
	votes    []subjectVote // without the server's name and its other tools
	shares   map[int]int   // how many thousandths of votes are for a subject
	name     []string      // words without those that are common to the server
	readonly readonlySigns
}

// A param is a parameter: an argument that the tool takes.
type param struct {
	name   string
	words  []string // of the name
	format []string // the words of the format, such as "uri"
}

// hints are the annotations of a tool; nil is not stated.
type hints struct{ readOnly, destructive, idempotent, openWorld *bool }

// A verbVote is a sign for a verb.
type verbVote struct {
	verb   switchboard.Verb
	weight int
	where  string
	says   string
}

// readTool reads a definition. Parts that it cannot read say nothing.
func readTool(t DefinedTool) *toolReading {
	r := &toolReading{tool: t, words: splitWords(cleanText(t.Name, maxNameBytes), maxNameWords)}
	if !wire.Strict(t.Definition) {
		return r
	}
	for name, value := range wire.Members(t.Definition) {
		switch name {
		case "title":
			r.readTitle(value)
		case "description":
			whole, _ := wire.String(value)
			s := cleanText(whole, maxTextBytes)
			if len(whole) > maxTextBytes {
				r.readonly.missed("description", "it is too long to be read whole")
			}
			r.text = strings.ToLower(s)
			r.raw = cutText(firstSentence(strings.TrimSpace(s)), maxSentenceBytes)
			r.sentence = splitWords(r.raw, maxSentenceWords)
		case "annotations":
			r.readAnnotations(value)
		case "inputSchema":
			r.schema = value
			r.readParams(value)
		case "outputSchema":
			r.readResults(value)
		}
	}
	return r
}

func (r *toolReading) readTitle(raw []byte) {
	if s, ok := wire.String(raw); ok && len(r.title) == 0 {
		r.title = splitWords(cleanText(s, maxNameBytes), maxNameWords)
	}
}

func (r *toolReading) readAnnotations(raw []byte) {
	for name, value := range wire.Members(raw) {
		var to **bool
		switch name {
		case "title":
			r.readTitle(value)
			continue
		case "readOnlyHint":
			to = &r.hints.readOnly
		case "destructiveHint":
			to = &r.hints.destructive
		case "idempotentHint":
			to = &r.hints.idempotent
		case "openWorldHint":
			to = &r.hints.openWorld
		default:
			continue
		}
		switch string(value) {
		case "true":
			*to = new(true)
		case "false":
			*to = new(false)
		}
	}
}

// readParams reads the first parameters by name, because their order says nothing.
func (r *toolReading) readParams(schema []byte) {
	properties, _ := wire.Field(schema, "properties")
	schemas := maps.Collect(wire.Members(properties))
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		if len(r.params) == maxParams {
			break
		}
		schema := schemas[name]
		name = cleanText(name, maxNameBytes)
		p := param{name: name, words: splitWords(name, maxNameWords)}
		for keyword, value := range wire.Members(schema) {
			if s, ok := wire.String(value); ok && keyword == "format" {
				p.format = splitWords(cleanText(s, maxNameBytes), maxNameWords)
			}
		}
		r.params = append(r.params, p)
	}
}

// readResults reads the names in the schema of the tool's results.
func (r *toolReading) readResults(schema []byte) {
	properties, _ := wire.Field(schema, "properties")
	for _, name := range slices.Sorted(maps.Keys(maps.Collect(wire.Members(properties)))) { // their order says nothing
		if len(r.results) >= maxParams {
			break
		}
		r.results = append(r.results, splitWords(cleanText(name, maxNameBytes), maxNameWords)...)
	}
	slices.Sort(r.results)
}

// cleanText returns at most limit bytes of a text of a server, without deceptive characters.
func cleanText(s string, limit int) string {
	s, _ = scan.Clean(cutText(s, 2*limit))
	return cutText(s, limit)
}

// cutText returns at most limit bytes of a text.
func cutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}
