package connect

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/clientfile"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/importer"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Server is a server in a file of the client, with the decision whether it moves.
type Server struct {
	Name  string               `json:"name"`
	Place Location             `json:"place"`
	ID    switchboard.ServerID `json:"id,omitempty"` // in the configuration; "" if the server stays

	// Stays says why the server stays where it is, or is "".
	Stays string `json:"stays,omitempty"`

	// Shared says that a server with the same settings stands in the configuration already.
	Shared bool     `json:"shared,omitempty"`
	Notes  []string `json:"notes,omitempty"`

	// Secrets are the files that hold the secrets of the server, relative to the configuration.
	Secrets []string `json:"secrets,omitempty"`

	entry    clientfile.Entry
	row      *edit.Server // nil if Shared
	contents []importer.SecretFile
	resolved switchboard.Server
}

// An adopter decides which servers can move to the configuration.
type adopter struct {
	client *Client
	opts   config.Options
	have   importer.Present
}

// adopt decides about one server. Its file is package importer's view of the entry: one server in the form that most clients have.
func (a *adopter) adopt(s *Server) {
	value, why := a.client.dialect.translate(s.entry, s.Place)
	if why != "" {
		s.Stays = why
		return
	}
	text, err := marshal(object{{"mcpServers", object{{s.Name, value}}}})
	if err != nil {
		s.Stays = err.Error()
		return
	}
	opts := a.opts
	opts.Text = text
	rows, secrets, mapping, err := importer.Join(s.Place.File, opts, a.have)
	if len(mapping) > 0 {
		s.Notes = mapping[0].Notes
	}
	if err != nil || len(mapping) != 1 || mapping[0].ID == "" {
		s.Stays = plainReason(cmp.Or(lastNote(s.Notes), errorText(err), "it cannot be served"))
		s.Notes = nil
		return
	}
	c, _, err := importer.Load(s.Place.File, opts)
	if err != nil || len(c.Servers) != 1 {
		s.Stays, s.Notes = plainReason(cmp.Or(errorText(err), "it cannot be served")), nil
		return
	}
	s.ID, s.Shared, s.resolved, s.contents = mapping[0].ID, mapping[0].Present, c.Servers[0], secrets
	s.resolved.ID = s.ID
	for _, settings := range []map[string]switchboard.Secret{s.resolved.Env, s.resolved.Headers} { // switchboard.yaml cannot say an empty value
		maps.DeleteFunc(settings, func(_ string, v switchboard.Secret) bool { return v.Reveal() == "" })
	}
	for _, f := range secrets {
		s.Secrets = append(s.Secrets, f.Name)
	}
	if len(rows) > 0 {
		s.row = &rows[0]
		a.have.IDs = append(a.have.IDs, s.ID)
		a.have.Servers = append(a.have.Servers, s.resolved)
	}
}

func lastNote(notes []string) string {
	if len(notes) == 0 {
		return ""
	}
	return notes[len(notes)-1]
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	if faults, ok := errors.AsType[switchboard.Faults](err); ok && len(faults) > 0 {
		return faults[0].Text
	}
	return err.Error()
}

// placeBefore matches the place of a fault that package importer found. The place is in a text that no file holds.
var placeBefore = regexp.MustCompile(`^(left out: )?(.*?:\d+:\d+: )?(server "(\\.|[^"\\])*": )?`)

// plainReason returns a reason of package importer without its place.
func plainReason(text string) string {
	return text[len(placeBefore.FindString(text)):]
}

// rows returns the rows of the servers in the text of a switchboard.yaml.
func rows(text []byte) (map[switchboard.ServerID]document.Node, error) {
	out := map[switchboard.ServerID]document.Node{}
	if len(bytes.TrimSpace(text)) == 0 {
		return out, nil
	}
	sink := &document.Sink{}
	doc, ok := document.ReadYAML("", text, sink)
	if !ok {
		return nil, sink.Err("")
	}
	if servers, ok := doc.FindMember("servers"); ok {
		for _, p := range servers.Pairs {
			out[switchboard.ServerID(p.Key.Text)] = p.Value
		}
	}
	return out, nil
}

// rowDigests returns a digest of the meaning of each server's row: comments and order of lines do not count in it, every value does.
func rowDigests(text []byte) (map[switchboard.ServerID]string, error) {
	all, err := rows(text)
	if err != nil {
		return nil, err
	}
	out := map[switchboard.ServerID]string{}
	for id, node := range all {
		var b strings.Builder
		describe(&b, node)
		out[id] = digestOf([]byte(b.String()))
	}
	return out, nil
}

func describe(b *strings.Builder, n document.Node) {
	fmt.Fprintf(b, "%d %q [", n.Kind, n.Text)
	for _, item := range n.Items {
		describe(b, item)
	}
	pairs := slices.Clone(n.Pairs)
	slices.SortFunc(pairs, func(a, b document.NodePair) int { return strings.Compare(a.Key.Text, b.Key.Text) })
	for _, p := range pairs {
		fmt.Fprintf(b, "%q:", p.Key.Text)
		describe(b, p.Value)
	}
	b.WriteString("]")
}
