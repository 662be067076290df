package api

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// forgetAnswers removes the schemas of answers from the document, which are 1.3 MiB: only the document itself needs them, and it is made anew for each reader. The
// schemas of requests stay, because requests are checked by them.
func forgetAnswers(doc *huma.OpenAPI) {
	all := doc.Components.Schemas.Map()
	needed := map[string]bool{}
	var keep func(s *huma.Schema)
	keep = func(s *huma.Schema) {
		if s == nil {
			return
		}
		if name := s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]; name != "" && !needed[name] {
			needed[name] = true
			keep(all[name])
		}
		keep(s.Items)
		keep(s.Not)
		for _, p := range s.Properties {
			keep(p)
		}
		if more, ok := s.AdditionalProperties.(*huma.Schema); ok {
			keep(more)
		}
		for _, list := range [][]*huma.Schema{s.OneOf, s.AnyOf, s.AllOf} {
			for _, of := range list {
				keep(of)
			}
		}
	}
	for _, path := range doc.Paths {
		for _, o := range []*huma.Operation{path.Get, path.Put, path.Post, path.Delete, path.Patch} {
			if o == nil {
				continue
			}
			o.Responses = nil
			for _, p := range o.Parameters {
				keep(p.Schema)
			}
			if o.RequestBody != nil {
				for _, m := range o.RequestBody.Content {
					keep(m.Schema)
				}
			}
		}
	}
	for name := range all {
		if !needed[name] {
			delete(all, name)
		}
	}
}
