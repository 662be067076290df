// Package openapi checks answers of the admin API against its own OpenAPI document.
package openapi

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/summit-switchboard/switchboard/internal/admin/api"
)

// An Operation is one operation of the document.
type Operation struct {
	ID, Method, Path, Office string
	Parameters               []string // their names
	Required                 []string // the names of those without which a request is refused
}

// document returns the document, and a compiler that knows it.
var document = sync.OnceValues(func() (map[string]any, *jsonschema.Compiler) {
	text, err := api.Document("test")
	if err != nil {
		panic(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("https://switchboard.test/openapi.json", doc); err != nil {
		panic(err)
	}
	return doc.(map[string]any), c
})

// Operations returns all operations, sorted by path and method.
func Operations() (all []Operation) {
	doc, _ := document()
	for path, item := range doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			one := Operation{Method: strings.ToUpper(method), Path: path}
			one.ID, _ = op.(map[string]any)["operationId"].(string)
			one.Office, _ = op.(map[string]any)["x-office"].(string)
			parameters, _ := op.(map[string]any)["parameters"].([]any)
			for _, p := range parameters {
				name, _ := p.(map[string]any)["name"].(string)
				one.Parameters = append(one.Parameters, name)
				if required, _ := p.(map[string]any)["required"].(bool); required {
					one.Required = append(one.Required, name)
				}
			}
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b Operation) int { return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method) })
	return all
}

var (
	compiling sync.Mutex
	compiled  = map[string]*jsonschema.Schema{}
)

// Check returns why the document does not allow the answer to a request, or nil. path has no query. An answer to a path or a method that the document
// does not have must be a problem.
func Check(method, path string, resp *http.Response, body []byte) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	doc, c := document()
	template, op := find(doc, method, path)
	pointer := "/components/schemas/Problem"
	switch {
	case op == nil && kind == "application/problem+json":
	case op == nil:
		return fmt.Errorf("%s %s is not in the document, and the answer %s is no problem", method, path, resp.Status)
	default:
		responses := op["responses"].(map[string]any)
		status := strconv.Itoa(resp.StatusCode)
		answer, ok := responses[status].(map[string]any)
		if !ok {
			return fmt.Errorf("%s %s: the document has no answer with the status %s", method, template, status)
		}
		content, _ := answer["content"].(map[string]any)
		if len(content) == 0 && len(body) == 0 {
			return nil
		}
		if content[kind] == nil {
			return fmt.Errorf("%s %s: the answer %s has the type %q, which the document does not have", method, template, status, kind)
		}
		if !strings.HasSuffix(kind, "json") || strings.HasSuffix(kind, "ndjson") { // lines are a text in the document
			return nil
		}
		pointer = fmt.Sprintf("/paths/%s/%s/responses/%s/content/%s/schema", escape(template), strings.ToLower(method), status, escape(kind))
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", method, path, err, body)
	}
	compiling.Lock()
	defer compiling.Unlock()
	if compiled[pointer] == nil {
		if compiled[pointer], err = c.Compile("https://switchboard.test/openapi.json#" + pointer); err != nil {
			return err
		}
	}
	if err := compiled[pointer].Validate(value); err != nil {
		return fmt.Errorf("%s %s: the answer does not fit the document: %w\n%s", method, path, err, body)
	}
	return nil
}

// find returns the operation of a path, and the template of the path.
func find(doc map[string]any, method, path string) (template string, op map[string]any) {
	for t, item := range doc["paths"].(map[string]any) {
		want, got := strings.Split(t, "/"), strings.Split(path, "/")
		fits := len(want) == len(got)
		for i := 0; fits && i < len(want); i++ {
			fits = want[i] == got[i] || strings.HasPrefix(want[i], "{")
		}
		if !fits {
			continue
		}
		if found, ok := item.(map[string]any)[strings.ToLower(method)].(map[string]any); ok && (op == nil || !strings.Contains(t, "{")) {
			template, op = t, found
		}
	}
	return template, op
}

// escape escapes a member's name in a JSON pointer (RFC 6901) that stands in a URL.
func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
}
