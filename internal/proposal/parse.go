package proposal

import (
	"bytes"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxDraftBytes limits the text of a draft: its files, and their indentation.
const maxDraftBytes = 3 << 20

// Parse reads a draft from YAML or JSON:
//
//	note: searches go to brave first
//	files:
//	  - path: tenants/acme/tenant.yaml
//	    text: |
//	      tenant: acme
//	      ranking: {prefer: [{verb: search, resource: internet, servers: [brave]}]}
//	  - {path: tenants/acme/tasks/old.yaml, delete: true}
//	claims:
//	  - {tenant: acme, task: browse, meets: "search:internet", by: brave/search_web}
//	  - {tenant: acme, unchanged: true}
//	  - {tenant: acme, decisions: 7, changes: [{change: moved, task: browse}]}
//
// A text in YAML loses its carriage returns, as YAML says. The error has all faults, each with its place and remedy.
func Parse(name string, data []byte) (*Draft, error) {
	sink := &document.Sink{}
	if len(data) > maxDraftBytes {
		return nil, refuse(switchboard.CodeBadArguments, "%s has %d bytes; at most %d", name, len(data), maxDraftBytes)
	}
	read := document.ReadYAML
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		read = document.ReadJSON
	}
	v, ok := read(name, data, sink)
	d := &Draft{}
	if ok {
		if m, ok := v.Open(d.keys()); ok {
			m.Read()
		}
	}
	if sink.Faulty() {
		return nil, sink.Err(name)
	}
	return d, d.check()
}

// readText reads a text that may be empty.
func readText(v document.Value) string {
	if v.Kind == document.KindText && v.Text == "" {
		return ""
	}
	s, _ := v.ReadText()
	return s
}

func word[T ~string](to *T) document.Type {
	return document.Text("a text", func(_ document.Value, s string) { *to = T(s) })
}

func (d *Draft) keys() *document.Keys {
	return &document.Keys{Rows: []document.Row{
		{Key: "note", Type: document.Custom("a text", nil, func(v document.Value) { d.Note = readText(v) }), Required: "say why, to the people who decide"},
		{Key: "files", Type: document.MapList("a list of files", func() *document.Keys { return (&FileDraft{}).keys() }, func(v document.Value) {
			for _, item := range v.ReadList(MaxFiles) {
				var f FileDraft
				if m, ok := item.Open(f.keys()); ok {
					m.Read()
					d.Files = append(d.Files, f)
				}
			}
		}), Required: "a file is {path: …, text: …}"},
		{Key: "claims", Type: document.MapList("a list of claims", func() *document.Keys { return (&StatedClaim{}).keys() }, func(v document.Value) {
			for _, item := range v.ReadList(MaxClaims) {
				var c StatedClaim
				if m, ok := item.Open(c.keys()); ok {
					m.Read()
					if err := c.check(); err != nil && !item.Sink.Faulty() {
						item.Fault("%s", err)
					}
					d.Claims = append(d.Claims, c)
				}
			}
		})},
	}}
}

func (f *FileDraft) keys() *document.Keys {
	return &document.Keys{Rows: []document.Row{
		{Key: "path", Type: word(&f.Path), Required: "name the file, relative to the folder of the configuration"},
		{Key: "text", Type: document.Custom("the whole text", nil, func(v document.Value) {
			s := readText(v)
			f.Text = &s
		})},
		{Key: "delete", Type: document.Bool(&f.Delete)},
		{Key: "etag", Type: word(&f.ETag)},
	}}
}

func (c *StatedClaim) keys() *document.Keys {
	return &document.Keys{Rows: []document.Row{
		{Key: "tenant", Type: word(&c.Tenant), Required: "a claim is about a tenant"},
		{Key: "task", Type: word(&c.Task)},
		{Key: "meets", Type: word(&c.Meets)},
		{Key: "by", Type: word(&c.By)},
		{Key: "lists", Type: word(&c.Lists)},
		{Key: "hides", Type: word(&c.Hides)},
		{Key: "unchanged", Type: document.Bool(&c.Unchanged)},
		{Key: "decisions", Type: document.Integer(1, maxDays, &c.Decisions)},
		{Key: "changes", Type: document.MapList("a list of changes", func() *document.Keys { return (&ClaimedDecision{}).keys() }, func(v document.Value) {
			for _, item := range v.ReadList(100) {
				var d ClaimedDecision
				if m, ok := item.Open(d.keys()); ok {
					m.Read()
					c.Changes = append(c.Changes, d)
				}
			}
		})},
	}}
}

func (d *ClaimedDecision) keys() *document.Keys {
	return &document.Keys{Rows: []document.Row{
		{Key: "change", Type: word(&d.Change), Required: "name the kind of change, such as moved"},
		{Key: "task", Type: word(&d.Task)},
		{Key: "tool", Type: word(&d.Tool)},
	}}
}
