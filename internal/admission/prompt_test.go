package admission

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// aPrompt and aTemplate are the definitions before each change.
const (
	aPrompt = `{"name":"review","title":"Review","description":"Reviews code.","icons":[{"src":"a.png"}],
"arguments":[{"name":"file","description":"Which file.","required":true},{"name":"style","title":"Style","required":false},{"name":"depth"}],
"_meta":{"example.com/note":1}}`
	aTemplate = `{"uriTemplate":"file:///{path}","name":"file","title":"File","description":"A file.","mimeType":"text/plain","icons":[{"src":"a.png"}],
"annotations":{"audience":["user"],"priority":0.5},"_meta":{"example.com/note":1}}`
)

// A change of a definition has the class of its meaning: one that looks harmless and is not would reach clients.
func TestAChangeOfAPromptOrTemplateHasTheClassOfItsMeaning(t *testing.T) {
	for _, test := range []struct {
		name, old, new string
		class          Class
		member         string
	}{
		{"spaces", `"title":"Review",`, `"title" : "Review" ,`, Same, ""},
		{"the order of members", `"name":"review","title":"Review",`, `"title":"Review","name":"review",`, Same, ""},
		{"a title", `"title":"Review",`, ``, Words, "title"},
		{"a description", `Reviews code.`, `Reviews all code.`, Words, "description"},
		{"an icon", `a.png`, `b.png`, Words, "icons"},
		{"a note", `note":1`, `note":2`, Words, "_meta.example.com/note"},
		{"an empty note", `{"example.com/note":1}`, `{}`, Words, "_meta.example.com/note"},
		{"notes that cannot be read", `{"example.com/note":1}`, `[]`, Narrower, "_meta"},
		{"a description of an argument", `Which file.`, `The file.`, Words, "arguments.file.description"},
		{"a title of an argument", `,"title":"Style"`, ``, Words, "arguments.style.title"},
		{"an icon of an argument", `{"name":"depth"}`, `{"name":"depth","icons":[]}`, Words, "arguments.depth.icons"},
		{"a word for optional", `{"name":"depth"}`, `{"name":"depth","required":false}`, Words, "arguments.depth.required"},
		{"one more optional argument", `{"name":"depth"}`, `{"name":"depth"},{"name":"lang"}`, Wider, "arguments.lang"},
		{"one more optional argument, the first one", `[{"name":"file"`, `[{"name":"lang","required":false},{"name":"file"`, Wider, "arguments.lang"},
		{"an argument that is optional now", `"required":true`, `"required":false`, Wider, "arguments.file.required"},
		{"an argument that says no more that it is required", `,"required":true`, ``, Wider, "arguments.file.required"},
		{"one more required argument", `{"name":"depth"}`, `{"name":"depth"},{"name":"lang","required":true}`, Narrower, "arguments.lang"},
		{"an argument that is required now", `"required":false`, `"required":true`, Narrower, "arguments.style.required"},
		{"an argument that is gone", `,{"name":"depth"}`, ``, Narrower, "arguments.depth"},
		{"an argument by another name", `"name":"style"`, `"name":"Style"`, Narrower, "arguments.style"},
		{"another order", `{"name":"style","title":"Style","required":false},{"name":"depth"}`, `{"name":"depth"},{"name":"style","title":"Style","required":false}`, Narrower, "arguments"},
		{"an argument that stands there twice", `{"name":"depth"}`, `{"name":"depth"},{"name":"depth"}`, Narrower, "arguments"},
		{"an argument without a name", `{"name":"depth"}`, `{"name":"depth"},{}`, Narrower, "arguments"},
		{"an argument whose name is null", `{"name":"depth"}`, `{"name":"depth"},{"name":null}`, Narrower, "arguments"},
		{"no argument", `{"name":"depth"}`, `{"name":"depth"},null`, Narrower, "arguments"},
		{"a member of an argument that is not known", `{"name":"depth"}`, `{"name":"depth","type":"integer"}`, Narrower, "arguments.depth.type"},
		{"required by another type", `"required":true`, `"required":"yes"`, Narrower, "arguments"},
		{"required is null", `"required":true`, `"required":null`, Narrower, "arguments"},
		{"arguments by another type", `{"name":"depth"}]`, `{"name":"depth"}],"arguments":{}`, Narrower, "arguments"},
		{"no arguments any more", `"arguments"`, `"args"`, Narrower, "arguments.file"},
		{"another name", `"name":"review"`, `"name":"audit"`, Narrower, "name"},
		{"a member that is not known", `"name":"review"`, `"name":"review","model":"x"`, Narrower, "model"},

		{"template: spaces", `"name":"file",`, `"name" : "file",`, Same, ""},
		{"template: a name", `"name":"file"`, `"name":"any file"`, Words, "name"},
		{"template: a title", `"title":"File",`, ``, Words, "title"},
		{"template: a description", `A file.`, `Any file.`, Words, "description"},
		{"template: an icon", `a.png`, `b.png`, Words, "icons"},
		{"template: an audience", `["user"]`, `["user","assistant"]`, Words, "annotations.audience"},
		{"template: a priority", `0.5`, `1`, Words, "annotations.priority"},
		{"template: an instant", `"priority":0.5`, `"priority":0.5,"lastModified":"2026-05-03T10:00:00Z"`, Words, "annotations.lastModified"},
		{"template: an annotation that is not known", `"priority":0.5`, `"priority":0.5,"write":true`, Narrower, "annotations.write"},
		{"template: annotations that cannot be read", `{"audience":["user"],"priority":0.5}`, `1`, Narrower, "annotations"},
		{"template: a note", `note":1`, `note":2`, Words, "_meta.example.com/note"},
		{"template: another type", `text/plain`, `text/html`, Narrower, "mimeType"},
		{"template: no type", `"mimeType":"text/plain",`, ``, Narrower, "mimeType"},
		{"template: another URI", `file:///{path}`, `file:///{+path}`, Narrower, "uriTemplate"},
		{"template: a member that is not known", `"name":"file"`, `"name":"file","size":1`, Narrower, "size"},
	} {
		t.Run(test.name, func(t *testing.T) {
			before, compare := aPrompt, ComparePrompts
			if strings.HasPrefix(test.name, "template") {
				before, compare = aTemplate, CompareTemplates
			}
			after := strings.Replace(before, test.old, test.new, 1)
			if after == before || !json.Valid([]byte(after)) {
				t.Fatalf("the test changes nothing, or too much: %s", after)
			}
			got, all := compare([]byte(before), []byte(after))
			if got != test.class || test.class != Same && !slices.Contains(all, Difference{test.member, test.class}) || test.class == Same && all != nil {
				t.Errorf("%s by %v, want %s by %s", got, all, test.class, test.member)
			}
		})
	}
}

func TestAnEmptyListOfArgumentsIsOneThatIsAbsent(t *testing.T) {
	without, with := json.RawMessage(`{"name":"a"}`), json.RawMessage(`{"name":"a","arguments":[]}`)
	for _, pair := range [][2]json.RawMessage{{without, with}, {with, without}} {
		if got, all := ComparePrompts(pair[0], pair[1]); got != Words || len(all) != 1 {
			t.Errorf("%s and then %s: %s by %v", pair[0], pair[1], got, all)
		}
	}
	if got, _ := ComparePrompts(without, json.RawMessage(`{"name":"a","arguments":[{"name":"b","required":true}]}`)); got != Narrower {
		t.Errorf("the first argument, which is required: %s", got)
	}
}

func TestInstructionsAreWords(t *testing.T) {
	for _, test := range []struct {
		before, after string
		class         Class
	}{
		{`"a"`, `"a"`, Same},
		{`"a"`, ` "\u0061"`, Same},
		{``, ``, Same},
		{`"a"`, `"b"`, Words},
		{``, `"b"`, Words},
		{`"a"`, ``, Words},
	} {
		got, all := CompareInstructions([]byte(test.before), []byte(test.after))
		if got != test.class || (got == Same) != (len(all) == 0) {
			t.Errorf("%s and then %s: %s by %v, want %s", test.before, test.after, got, all, test.class)
		}
	}
}

// A drawnArgument is an argument of a prompt in a property.
type drawnArgument struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Required    bool   `json:"required,omitempty"`
}

func drawArguments(t *rapid.T, label string) []drawnArgument {
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) drawnArgument {
		return drawnArgument{rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name"), rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "words"), rapid.Bool().Draw(t, "required")}
	}), 0, 4, func(a drawnArgument) string { return a.Name }).Draw(t, label)
}

// accepts reports whether a prompt with the arguments takes a call.
func accepts(arguments []drawnArgument, call map[string]bool) bool {
	known := map[string]bool{}
	for _, a := range arguments {
		known[a.Name] = true
		if a.Required && !call[a.Name] {
			return false
		}
	}
	for name := range call {
		if !known[name] {
			return false
		}
	}
	return true
}

// Each call that a prompt took still fits after a change that is same, words or wider: it is tried with all calls. And a narrower change of arguments
// has a reason: a call does not fit any more, or the order differs.
func TestACallOfAPromptFitsAfterEachHarmlessChange(t *testing.T) {
	classes := map[Class]int{}
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawArguments(t, "before"), drawArguments(t, "after")
		definition := func(arguments []drawnArgument) json.RawMessage {
			text, err := json.Marshal(map[string]any{"name": "p", "arguments": arguments})
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		class, all := ComparePrompts(definition(before), definition(after))
		classes[class]++
		fits := true
		for bits := range 16 {
			call := map[string]bool{}
			for i, name := range []string{"a", "b", "c", "d"} {
				if bits>>i&1 == 1 {
					call[name] = true
				}
			}
			fits = fits && (!accepts(before, call) || accepts(after, call))
		}
		if class <= Wider && !fits {
			t.Fatalf("%v and then %v is %s by %v, and a call does not fit any more", before, after, class, all)
		}
		byOrder := slices.ContainsFunc(all, func(d Difference) bool { return d.Member == "arguments" })
		if class == Narrower && fits && !byOrder {
			t.Fatalf("%v and then %v is %s by %v, and all calls fit", before, after, class, all)
		}
	})
	if classes[Wider] == 0 || classes[Narrower] == 0 {
		t.Errorf("these are too few: %v", classes)
	}
}

// All words of a prompt and of a template are changed, and nothing else.
func TestAllChangesInTheWordsOfPromptsAndTemplatesAreRecognised(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.String()
		draw := func() map[string]any {
			return map[string]any{
				"title": words.Draw(t, "title"), "description": words.Draw(t, "description"), "icons": []any{map[string]any{"src": words.Draw(t, "icon")}},
				"_meta": map[string]any{words.Draw(t, "note"): words.Draw(t, "value")},
			}
		}
		names := rapid.SliceOfNDistinct(words, 0, 4, rapid.ID).Draw(t, "names")
		prompt := func() json.RawMessage {
			p, arguments := draw(), []any{}
			for i, name := range names {
				one := draw()
				delete(one, "_meta")
				one["name"], one["required"] = name, i%2 == 0
				arguments = append(arguments, one)
			}
			p["name"], p["arguments"] = "p", arguments
			return written(p)
		}
		template := func() json.RawMessage {
			p := draw()
			p["name"], p["uriTemplate"], p["annotations"] = words.Draw(t, "name"), "x:{y}", map[string]any{"audience": []string{words.Draw(t, "audience")}}
			return written(p)
		}
		for what, f := range map[string]func() json.RawMessage{"prompt": prompt, "template": template} {
			compare := map[string]func(a, b json.RawMessage) (Class, []Difference){"prompt": ComparePrompts, "template": CompareTemplates}[what]
			before, after := f(), f()
			class, all := compare(before, after)
			if want := map[bool]Class{true: Same, false: Words}[string(before) == string(after)]; class != want {
				t.Fatalf("%s and then %s: %s by %v", before, after, class, all)
			}
		}
	})
}

func FuzzComparePrompts(f *testing.F) {
	f.Add(aPrompt, strings.Replace(aPrompt, "Style", "Taste", 1))
	f.Add(`{}`, `[]`)
	f.Add(`{"arguments":[{"name":"a"}]}`, `{"arguments":[{"name":1}]}`)
	f.Add(`{"arguments":null}`, `{}`)
	fuzzComparison(f, ComparePrompts)
}

func FuzzCompareTemplates(f *testing.F) {
	f.Add(aTemplate, strings.Replace(aTemplate, "user", "assistant", 1))
	f.Add(`{"annotations":{}}`, `{"annotations":null}`)
	fuzzComparison(f, CompareTemplates)
}

// fuzzComparison checks what is true of all definitions: the class is that of the worst difference, and a definition is the same as itself.
func fuzzComparison(f *testing.F, compare func(a, b json.RawMessage) (Class, []Difference)) {
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 8192 {
			t.Skip("long")
		}
		class, all := compare([]byte(a), []byte(b))
		if (class == Same) != (len(all) == 0) || class != worst(all) {
			t.Errorf("%s by %v", class, all)
		}
		if !slices.IsSortedFunc(all, func(x, y Difference) int { return strings.Compare(topOf(x), topOf(y)) }) {
			t.Errorf("not sorted: %v", all)
		}
		object := func(s string) bool { return json.Valid([]byte(s)) && strings.HasPrefix(strings.TrimSpace(s), "{") }
		if same, _ := compare([]byte(a), []byte(a)); object(a) && same != Same {
			t.Errorf("with itself it is %s", same)
		}
		if object(a) && object(b) && class == Same && string(written(read([]byte(a)))) != string(written(read([]byte(b)))) {
			t.Errorf("%s and %s are the same", a, b)
		}
	})
}

// topOf returns the member of the definition that a difference is in.
func topOf(d Difference) string {
	for _, top := range []string{"arguments", "annotations", "_meta"} {
		if d.Member == top || strings.HasPrefix(d.Member, top+".") {
			return top
		}
	}
	return fmt.Sprint(d.Member)
}
