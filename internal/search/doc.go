package search

import (
	"strings"
	"unicode"
	"unique"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A field is a part of a definition. Words are counted separately for each field.
type field uint8

const (
	inName   field = iota
	inTitle        // the name for people
	inText         // the description
	inParam        // the name of a parameter
	inDetail       // the description of a parameter, and its enum
	inServer       // the server's id
	fields
)

// Limits of the text that is read from a definition. Text beyond them is not found and
// costs nothing. Real descriptions have 7,000 bytes at most, 4,300 of 99.9 %.
const (
	maxName    = 256  // bytes of a name, a title or a server's id
	maxText    = 8192 // bytes of the description
	maxDetail  = 512  // bytes of the description of one parameter
	maxSchemas = 256  // parameters and other nested schemas, at all depths together
	maxDepth   = 5    // levels of nested schemas
	maxEnum    = 16   // words of a parameter's enum
	maxWords   = 1024 // different words of one tool
)

// A Doc has the words of one tool's definition, counted by field. It is immutable, and every index with the tool
// shares it.
type Doc struct {
	id     switchboard.ToolID
	name   string // as nameKey returns it
	server string
	words  []docWord
	length [fields]int // number of words in each field
}

// A docWord is one word of a tool and its count in each field.
type docWord struct {
	word  unique.Handle[string]
	times [fields]uint8
}

// Analyse reads a definition. It ignores parts that it cannot read, such as a description that is no string: the
// catalog refuses invalid tools.
func Analyse(id switchboard.ToolID, definition []byte) *Doc {
	a := analysis{Doc: Doc{id: id, name: nameKey(id.Name), server: nameKey(string(id.Server))}, wordIndex: map[unique.Handle[string]]int{}}
	a.readText(inName, id.Name, maxName)
	a.readText(inServer, string(id.Server), maxName)
	for name, value := range wire.Members(definition) {
		switch name {
		case "title":
			a.readJSON(inTitle, value, maxName)
		case "annotations":
			if title, ok := wire.Field(value, "title"); ok {
				a.readJSON(inTitle, title, maxName)
			}
		case "description":
			a.readJSON(inText, value, maxText)
		case "inputSchema":
			a.readSchema(value, 1)
		}
	}
	d := a.Doc
	d.words = append([]docWord(nil), a.words...) // without spare capacity
	return &d
}

// ID returns the tool's id.
func (d *Doc) ID() switchboard.ToolID { return d.id }

// An analysis is a Doc in construction.
type analysis struct {
	Doc
	wordIndex map[unique.Handle[string]]int // in words
	schemas   int
}

// readJSON reads a JSON string.
func (a *analysis) readJSON(f field, raw []byte, limit int) {
	if s, ok := wire.String(raw); ok {
		a.readText(f, s, limit)
	}
}

func (a *analysis) readText(f field, text string, limit int) {
	eachWord(text[:min(limit, len(text))], func(w []byte) {
		if stopWords[string(w)] {
			return
		}
		h := unique.Make(string(w))
		i, ok := a.wordIndex[h]
		if !ok {
			if i = len(a.words); i == maxWords {
				return
			}
			a.wordIndex[h] = i
			a.words = append(a.words, docWord{word: h})
		}
		if t := &a.words[i].times[f]; *t < 255 {
			*t++
		}
		a.length[f]++
	})
}

// readSchema reads a JSON Schema's names and descriptions of parameters.
func (a *analysis) readSchema(raw []byte, depth int) {
	if a.schemas++; depth > maxDepth || a.schemas > maxSchemas {
		return
	}
	for keyword, value := range wire.Members(raw) {
		switch keyword {
		case "description":
			if depth > 1 { // the description at the top repeats the tool's own
				a.readJSON(inDetail, value, maxDetail)
			}
		case "properties":
			for name, schema := range wire.Members(value) {
				if a.schemas > maxSchemas {
					return
				}
				a.readText(inParam, name, maxName)
				a.readSchema(schema, depth+1)
			}
		case "$defs", "definitions":
			for _, schema := range wire.Members(value) {
				if a.schemas > maxSchemas {
					return
				}
				a.readSchema(schema, depth+1)
			}
		case "items":
			a.readSchema(value, depth+1)
		case "anyOf", "oneOf", "allOf":
			for schema := range wire.Elements(value) {
				if a.schemas > maxSchemas {
					return
				}
				a.readSchema(schema, depth+1)
			}
		case "enum":
			n := 0
			for word := range wire.Elements(value) {
				if n++; n > maxEnum {
					break
				}
				a.readJSON(inDetail, word, maxName)
			}
		}
	}
}

// nameKey returns name in lower case without the characters between its words, so that read_file, readFile and "read
// file" are equal.
func nameKey(name string) string {
	return strings.Map(func(c rune) rune {
		if classOf(c) == outside {
			return -1
		}
		return unicode.ToLower(c)
	}, name[:min(maxName, len(name))])
}
