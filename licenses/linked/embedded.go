package linked

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const ours = "github.com/summit-switchboard/switchboard/"

// The owners of embedded data, besides the names in data.
const (
	own      = "own"       // it is ours
	asModule = "as module" // the license of the module covers it too
)

// embedding says whose the data is that packages embed with go:embed. A package that is not here is an error: somebody has to look at its data.
var embedding = map[string]string{
	ours + "cmd/switchboard":                              own,
	ours + "docs":                                         own,
	ours + "internal/admin/page":                          htmx, // the rest is ours
	ours + "internal/policy":                              own,
	ours + "internal/proposal":                            own,
	ours + "internal/redact/detect":                       gitleaks, // and phoneNumbers
	ours + "internal/sample":                              own,
	ours + "internal/store":                               own,
	ours + "internal/token":                               vocabularies,
	ours + "licenses":                                     own, // the texts themselves
	ours + "policies":                                     own,
	ours + "tenants":                                      own,
	opa + "/capabilities":                                 asModule,
	opa + "/internal/compiler/wasm/opa":                   opaWasm,
	opa + "/v1/ast":                                       asModule,
	opa + "/v1/schemas":                                   asModule,
	"github.com/santhosh-tekuri/jsonschema/v6":            metaSchemas,
	"github.com/vektah/gqlparser/v2/validator":            asModule, // with a license beside the data
	"google.golang.org/protobuf/internal/editiondefaults": asModule,
}

const opa = "github.com/open-policy-agent/opa"

// The names of data.
const (
	htmx         = "htmx"
	htmxEvents   = "the SSE extension of htmx"
	gitleaks     = "the rules of gitleaks"
	opaWasm      = "the C and C++ in OPA's opa.wasm"
	phoneNumbers = "the numbering plans of libphonenumber"
	metaSchemas  = "the meta-schemas of JSON Schema"
	vocabularies = "the vocabularies of tiktoken"
)

// A source is a work that another one contains, as data or in another form.
type source struct {
	name, version string
	module        string   // the module that contains it; "" for ours
	files         []string // with its licenses, from the folder of the module; those of programs in C have them in comments

	// Where the module does not have the license: one of ours, and the line with the copyright.
	standard, copyright string
}

// data are the works within others.
var data = []source{
	{name: gitleaks, version: "v8.30.1", files: []string{"internal/redact/detect/gitleaks/LICENSE"}},
	{name: htmx, version: "2.0.11", files: []string{"internal/admin/page/assets/LICENSE-htmx"}},
	{name: htmxEvents, version: "2.2.4", files: []string{"internal/admin/page/assets/LICENSE-sse"}},
	{name: metaSchemas, module: "github.com/santhosh-tekuri/jsonschema/v6", standard: "BSD-3-Clause", copyright: "Copyright (c) 2022 JSON Schema Specification Authors"},
	{name: opaWasm, module: opa, files: []string{
		"wasm/src/cidr.c", "wasm/src/encoding.c", "wasm/src/glob-lexer.cc", "wasm/src/lib/errno.h", "wasm/src/lib/math.c", "wasm/src/lib/stdlib.c", "wasm/src/libmpdec/mpdecimal.c",
	}, standard: "BSD-3-Clause", copyright: "Copyright (c) 1999-2018 The RE2 Authors. All rights reserved."},
	{name: phoneNumbers, version: "9.0.32", standard: "Apache-2.0"},
	{name: vocabularies, version: "o200k_base, cl100k_base", standard: "MIT", copyright: "Copyright (c) 2022 OpenAI, Shantanu Jain"},
}

// findData returns the works within others. packages are those that embed files, dirs the folders of the modules.
func findData(root string, packages []string, dirs map[string]string) ([]Work, error) {
	for _, p := range packages {
		if _, ok := embedding[p]; !ok {
			return nil, fmt.Errorf("package %s embeds files; say in embedding of embedded.go whose they are", p)
		}
	}
	for p, owner := range embedding {
		switch {
		case !slices.Contains(packages, p):
			return nil, fmt.Errorf("package %s embeds nothing or is not linked; take it out of embedding in embedded.go", p)
		case owner != own && owner != asModule && !slices.ContainsFunc(data, func(s source) bool { return s.name == owner }):
			return nil, fmt.Errorf("embedding of embedded.go names %s, which is not in data", owner)
		}
	}
	var works []Work
	for _, s := range data {
		dir := root
		if s.module != "" {
			dir = dirs[s.module]
		}
		if dir == "" {
			return nil, fmt.Errorf("%s is in %s, which is not linked; take it out of data in embedded.go", s.name, s.module)
		}
		w, err := s.find(root, dir)
		if err != nil {
			return nil, err
		}
		works = append(works, w)
	}
	return works, nil
}

// find returns the work. dir is the folder of the module that contains it.
func (s *source) find(root, dir string) (Work, error) {
	w := Work{Name: s.name, Version: s.version, In: s.module}
	if w.In == "" {
		w.In = "Switchboard"
	}
	for _, file := range s.files {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(file)))
		if err != nil {
			return w, err
		}
		if ext := path.Ext(file); ext != "" {
			if text = copyrightComment(text); text == nil {
				return w, fmt.Errorf("%s: %s has no comment with a copyright", s.name, file)
			}
		}
		w.add(file, string(text))
	}
	if s.standard == "" {
		return w, nil
	}
	file := filepath.Join(root, "licenses", "texts", s.standard)
	if s.standard == "Apache-2.0" {
		file = filepath.Join(root, "LICENSE")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return w, err
	}
	w.add(s.standard, strings.Replace(string(text), "COPYRIGHT", s.copyright, 1))
	return w, nil
}

// comment matches a comment of C: a block, or lines.
var comment = regexp.MustCompile(`(?s)/\*.*?\*/|(?:[ \t]*//[^\n]*\n)+`)

// commentMarks matches what makes a line a comment.
var commentMarks = regexp.MustCompile(`(?m)^[ \t]*(?://|/\*+|\*/|\*) ?|\*/$`)

// copyrightComment returns the text of the first comment with a copyright, or nil.
func copyrightComment(program []byte) []byte {
	for _, c := range comment.FindAll(program, -1) {
		if strings.Contains(string(c), "Copyright") {
			return commentMarks.ReplaceAll(c, nil)
		}
	}
	return nil
}

// digest returns a short name of a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// reviewed has the SPDX ids of texts that somebody has read, because they hold more than known licenses. The key is the digest of the text, so a
// text that changes is read again.
var reviewed = map[string]string{
	"afcfdb5fb957566f": "BSD-3-Clause", // says also where it comes from
	"b3aba0bd32600381": "SunPro",
	"748a07c89786fa70": "MIT",                       // with a link to the origin
	"2b0fcc874afffd82": "BSD-3-Clause",              // the prelude of GraphQL, with the name of Facebook
	"f597097efe3d9702": "BSD-3-Clause MIT",          // musl and more, in modernc.org/libc
	"5ae5bee3072a8413": "",                          // the origin of a picture that is not in the program
	"b4366b9c27a93646": "BSD-3-Clause MIT blessing", // modernc.org/sqlite: what it names beyond these is not linked
	"8438c9c89b849131": "blessing",                  // SQLite is in the public domain
	"324926617f47a0ca": "Apache-2.0 MIT",            // some files of go.yaml.in/yaml are under the one, the others under the other
}
