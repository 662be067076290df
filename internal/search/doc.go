package search

import (
	"strings"
	"unicode"
	"unique"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A field is where a word of a tool stands.
type field uint8

const (
	inName   field = iota
	inTitle        // the name for people
	inText         // the description
	inParam        // the name of a parameter
	inDetail       // what is said of a parameter, and the words that it may be
	inServer       // the server's id
	fields
)

// Bounds of what is read of a definition; what is over them is not found, and
// costs nothing. Real descriptions have 7,000 bytes at most, 4,300 of 99.9 %.
const (
	maxName    = 256  // bytes of a name, a title or a server's id
	maxText    = 8192 // bytes of the description
	maxDetail  = 512  // bytes of what is said of one parameter
	maxSchemas = 256  // parameters and other schemas within, at all depths together
	maxDepth   = 5    // schemas within each other
	maxEnum    = 16   // words that a parameter may be
	maxWords   = 1024 // different words of one tool
)

// A Doc is what one tool is found by: the words of its definition, and where
// they stand. It is immutable, and every index that holds the tool shares it.
type Doc struct {
	id     switchboard.ToolID
	name   string // as keyOf has it
	server string
	words  []docWord
	length [fields]int // in words
}

// A docWord is one word of a tool, and how often it stands in each field.
type docWord struct {
	word  unique.Handle[string]
	times [fields]uint8
}

// Analyse reads a definition. What it cannot read, such as a description that is no
// string, is not found; refusing tools is for the catalog.
func Analyse(id switchboard.ToolID, definition []byte) *Doc {
	a := analysis{Doc: Doc{id: id, name: keyOf(id.Name), server: keyOf(string(id.Server))}, at: map[unique.Handle[string]]int{}}
	a.read(inName, id.Name, maxName)
	a.read(inServer, string(id.Server), maxName)
	for name, value := range wire.Members(definition) {
		switch name {
		case "title":
			a.text(inTitle, value, maxName)
		case "annotations":
			if title, ok := wire.Field(value, "title"); ok {
				a.text(inTitle, title, maxName)
			}
		case "description":
			a.text(inText, value, maxText)
		case "inputSchema":
			a.schema(value, 1)
		}
	}
	d := a.Doc
	d.words = append([]docWord(nil), a.words...) // without what append has spared
	return &d
}

// ID is the tool's.
func (d *Doc) ID() switchboard.ToolID { return d.id }

// An analysis is a Doc that is being made.
type analysis struct {
	Doc
	at      map[unique.Handle[string]]int // in words
	schemas int
}

// text reads a string as it stands in JSON.
func (a *analysis) text(f field, raw []byte, limit int) {
	if s, ok := wire.String(raw); ok {
		a.read(f, s, limit)
	}
}

func (a *analysis) read(f field, text string, limit int) {
	eachWord(text[:min(limit, len(text))], func(w []byte) {
		if stops[string(w)] {
			return
		}
		h := unique.Make(string(w))
		i, ok := a.at[h]
		if !ok {
			if i = len(a.words); i == maxWords {
				return
			}
			a.at[h] = i
			a.words = append(a.words, docWord{word: h})
		}
		if t := &a.words[i].times[f]; *t < 255 {
			*t++
		}
		a.length[f]++
	})
}

// schema reads what a JSON Schema says of parameters.
func (a *analysis) schema(raw []byte, depth int) {
	if a.schemas++; depth > maxDepth || a.schemas > maxSchemas {
		return
	}
	for keyword, value := range wire.Members(raw) {
		switch keyword {
		case "description":
			if depth > 1 { // that of all parameters together repeats the tool's
				a.text(inDetail, value, maxDetail)
			}
		case "properties":
			for name, schema := range wire.Members(value) {
				if a.schemas > maxSchemas {
					return
				}
				a.read(inParam, name, maxName)
				a.schema(schema, depth+1)
			}
		case "$defs", "definitions":
			for _, schema := range wire.Members(value) {
				if a.schemas > maxSchemas {
					return
				}
				a.schema(schema, depth+1)
			}
		case "items":
			a.schema(value, depth+1)
		case "anyOf", "oneOf", "allOf":
			for schema := range wire.Elements(value) {
				if a.schemas > maxSchemas {
					return
				}
				a.schema(schema, depth+1)
			}
		case "enum":
			n := 0
			for word := range wire.Elements(value) {
				if n++; n > maxEnum {
					break
				}
				a.text(inDetail, word, maxName)
			}
		}
	}
}

// keyOf is a name without what only parts its words, so that read_file, readFile
// and "read file" are the same.
func keyOf(name string) string {
	return strings.Map(func(c rune) rune {
		if kindOf(c) == outside {
			return -1
		}
		return unicode.ToLower(c)
	}, name[:min(maxName, len(name))])
}
