package page

import (
	"embed"
	"html/template"
	"io/fs"
	"path"
	"regexp"
	"sync"
)

//go:embed views
var files embed.FS

const viewsFolder = "views/"

var (
	definedTemplate = regexp.MustCompile(`{{define "([^"]+)"}}`)
	usedTemplate    = regexp.MustCompile(`{{template "([^"]+)"`)
)

// templateSet has the templates of the views. Each is parsed when its view is first shown, with the templates that it uses: all of them would take a megabyte, and
// few people open all views. It is safe for concurrent use.
type templateSet struct {
	homes  func() map[string]string // the file that defines a template
	parsed sync.Map                 // func() *template.Template, by file
}

func newTemplateSet() *templateSet {
	return &templateSet{homes: sync.OnceValue(func() map[string]string {
		homes := map[string]string{}
		entries, _ := fs.ReadDir(files, path.Clean(viewsFolder)) // embedded
		for _, e := range entries {
			for _, m := range definedTemplate.FindAllStringSubmatch(viewText(e.Name()), -1) {
				homes[m[1]] = e.Name()
			}
		}
		return homes
	})}
}

// viewText returns the text of a file of the views.
func viewText(file string) string {
	text, _ := files.ReadFile(viewsFolder + file) // embedded; a template that is not there fails when it is parsed
	return string(text)
}

// of returns the template of a view. It panics if the view has no file or a fault, as template.Must does.
func (s *templateSet) of(view string) *template.Template {
	parse, ok := s.parsed.Load(view)
	if !ok {
		parse, _ = s.parsed.LoadOrStore(view, sync.OnceValue(func() *template.Template {
			needed := s.needed(view)
			return template.Must(template.New(view).Funcs(functions).ParseFS(files, needed...))
		}))
	}
	return parse.(func() *template.Template)()
}

// needed returns the paths of a view's file, and of the files that define what it uses.
func (s *templateSet) needed(view string) []string {
	paths, seen := []string{viewsFolder + view}, map[string]bool{view: true}
	for i := 0; i < len(paths); i++ {
		for _, m := range usedTemplate.FindAllStringSubmatch(viewText(path.Base(paths[i])), -1) {
			file, ok := s.homes()[m[1]]
			if !ok {
				panic(paths[i] + " uses the template " + m[1] + ", which no file defines")
			}
			if !seen[file] {
				seen[file] = true
				paths = append(paths, viewsFolder+file)
			}
		}
	}
	return paths
}
