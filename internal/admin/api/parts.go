package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A partEdit changes one part of a file.
type partEdit struct {
	At     string `json:"at" minLength:"2" maxLength:"512" pattern:"^/" doc:"Where: a JSON Pointer (RFC 6901), such as /ranking/prefer/0/servers. The last element - is a new item of a list. Missing maps on the way are made."`
	Value  any    `json:"value,omitempty" doc:"The new value."`
	Remove bool   `json:"remove,omitempty" doc:"Remove what is there, instead of a value."`
}

type partRequest struct {
	FileQuery
	Body struct {
		Edits  []partEdit `json:"edits" minItems:"1" maxItems:"100" doc:"Made in this order, all or none."`
		Reason string     `json:"reason,omitempty" maxLength:"500" doc:"Why; for the history and the receipt."`
	}
}

// partRoutes are the routes about parts of files.
type partRoutes struct{ *API }

// applyParts returns the text with the edits. All other bytes stay, with their comments. The error is a *switchboard.Error.
func applyParts(name string, text []byte, edits []partEdit) ([]byte, error) {
	for _, e := range edits {
		path := strings.Split(e.At[1:], "/")
		for i := range path {
			path[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(path[i])
		}
		var value *document.Node
		if !e.Remove {
			raw, err := json.Marshal(e.Value)
			if err != nil {
				return nil, err
			}
			v, ok := document.ReadJSON("value", raw, &document.Sink{})
			if !ok || v.Kind == document.KindNull {
				return nil, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: "the edit at " + e.At + " has no value; give one, or remove: true"}
			}
			value = &v.Node
		}
		next, err := edit.Set(name, text, path, value)
		if err != nil {
			return nil, &switchboard.Error{Code: switchboard.CodeConfig, Text: err.Error(), Hint: "nothing was written"}
		}
		text = next
	}
	return text, nil
}

// partText returns the text of the file with the edits of a request.
func (a partRoutes) partText(q asked, in *partRequest) ([]byte, error) {
	text, err := a.o.Editor.Read(q.officer, in.Path)
	switch {
	case err != nil:
		return nil, changed(err)
	case text == nil:
		return nil, notFound("there is no file " + in.Path)
	case !strings.HasSuffix(in.Path, ".yaml"):
		return nil, &apiProblem{Problem: access.ProblemOf(http.StatusBadRequest, &switchboard.Error{Text: "only parts of YAML files are edited; send the whole text of this one"})}
	}
	if in.IfMatch != "" && in.IfMatch != change.ETagOf(text) {
		return text, nil // Apply refuses it for its entity tag, whatever the text
	}
	return applyParts(in.Path, text, in.Body.Edits)
}

// add adds the route that edits parts of a file; make makes the change.
func (a partRoutes) add(errors []int, make func(ctx context.Context, q asked, f *FileQuery, w change.Wish) (*changeAnswer, error)) {
	add(a.API, route{id: "edit-file", method: http.MethodPatch, path: "/v1/configuration/file", needs: anyOffice, errors: errors, summary: "Change parts of a YAML file. Comments, order and all other bytes stay; else as a change of the whole file"},
		func(ctx context.Context, q asked, in *partRequest) (*changeAnswer, error) {
			text, err := a.partText(q, in)
			if err != nil {
				return nil, err
			}
			return make(ctx, q, &in.FileQuery, change.Wish{FileWish: change.FileWish{Text: text}, Reason: in.Body.Reason})
		})
}
