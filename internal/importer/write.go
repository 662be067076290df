package importer

import (
	"cmp"
	"fmt"
	"net"
	neturl "net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/endpoint"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A SecretFile is a secret that Convert took from another program's file.
type SecretFile struct {
	// Name is the path to write it to, for its owner alone, with slashes, relative to the folder of switchboard.yaml.
	Name string

	// Content is the whole content of the file.
	Content switchboard.Secret
}

// SecretFolder is the folder of all SecretFiles.
const SecretFolder = "secrets"

// Convert reads another program's file of MCP servers. It returns the text of a switchboard.yaml, and the
// secrets that the text refers to. The caller writes them. Convert leaves out servers with faults, and servers
// that switchboard.yaml cannot express; the Mapping gives the reasons. The error is switchboard.Faults in the
// file, or says that no server is left.
func Convert(file string, opts config.Options) (text []byte, secrets []SecretFile, mapping Mapping, err error) {
	rows, secrets, mapping, err := Join(file, opts, Present{})
	if err != nil {
		return nil, nil, mapping, err
	}
	head := fmt.Sprintf("# Imported from %s by switchboard import.\n", lineComment(filepath.Base(file)))
	if text, err = edit.AddServers(file, []byte(head), rows); err != nil {
		return nil, nil, mapping, err
	}
	return text, secrets, mapping, nil
}

// Present describes the configuration that the servers of another program join. The zero value is a configuration
// without servers.
type Present struct {
	// Servers are its servers. Among them are those that the other program's file is compared with.
	Servers []switchboard.Server

	// IDs are all ids in its file, also those of disabled and faulty servers.
	IDs []switchboard.ServerID

	// Listen is the address and port where its HTTP endpoint listens, or "". A server with that address is Switchboard itself.
	Listen string

	// HasSecret reports whether a file of this SecretFile.Name exists. nil means that there is none.
	HasSecret func(name string) bool
}

// Join is Convert for a configuration that has servers: it returns the rows to add. A server that the configuration has
// already, with an equal meaning, is skipped; its Mapping has its id there. A server whose id is taken gets another id.
// Join also leaves out servers with references to variables that are not set, because such a row is a fault of the whole
// configuration. If every server is skipped, there are no rows, and no error.
func Join(file string, opts config.Options, have Present) (rows []edit.Server, secrets []SecretFile, mapping Mapping, err error) {
	joins := len(have.IDs) > 0 || have.Servers != nil || have.HasSecret != nil || have.Listen != ""
	r := newReader(file, opts)
	found := r.readServers()
	w := &importWriter{reader: r, names: map[string]bool{}, has: have.HasSecret}
	skipped := 0
	if joins {
		skipped = r.skipPresent(found, have)
	}
	for _, f := range found {
		switch {
		case len(f.sink.Faults) > 0:
			f.ID = ""
			for _, fault := range f.sink.Faults {
				f.addNote("left out: %s", fault)
			}
		case f.use && !f.Present:
			if row, ok := w.makeRow(f); ok {
				rows = append(rows, row)
			}
		}
		mapping = append(mapping, f.Mapped)
	}
	if len(rows) == 0 && skipped == 0 && len(r.sink.Faults) == 0 {
		r.sink.Add(switchboard.Fault{File: file, Text: "no server is left to import"})
	}
	if err := r.sink.Err(file); err != nil {
		return nil, nil, mapping, err
	}
	return rows, w.secrets, mapping, nil
}

// skipPresent marks the servers that are present with an equal meaning, and returns their number. Another server gets a new id
// if its id is taken, and a fault if one of its variables is not set.
func (r *reader) skipPresent(found []*foreignServer, have Present) (skipped int) {
	taken := map[switchboard.ServerID]bool{}
	for _, id := range have.IDs {
		taken[id] = true
	}
	for _, f := range found {
		if !f.use || len(f.sink.Faults) > 0 {
			continue
		}
		notes := slices.Clone(f.Notes)
		s := r.resolveServer(f) // records a fault for a variable that is not set
		f.Notes = notes
		if callsListener(s.URL, have.Listen) {
			f.use, f.ID = false, ""
			f.addNote(switchboardItself)
			continue
		}
		if i := slices.IndexFunc(have.Servers, func(p switchboard.Server) bool { return sameMeaning(&p, &s) }); i >= 0 && len(f.sink.Faults) == 0 {
			f.ID, f.Present = have.Servers[i].ID, true
			skipped++
			if there := cmp.Or(have.Servers[i].Timeout, switchboard.DefaultTimeout); f.timeout != 0 && f.timeout != there {
				f.addNote("its timeout of %s is not taken over: here it is %s", formatTimeout(f.timeout), formatTimeout(there))
			}
		}
	}
	for _, f := range found {
		if f.use && !f.Present && len(f.sink.Faults) == 0 {
			// An id of this file is taken too, unless it is the server's own.
			id := freeID(string(f.ID), func(id string) bool {
				return taken[switchboard.ServerID(id)] || slices.ContainsFunc(found, func(o *foreignServer) bool { return o != f && !o.Present && string(o.ID) == id })
			})
			if id != string(f.ID) {
				f.addNote("the id %s is taken here by another server", f.ID)
				f.ID = switchboard.ServerID(id)
			}
		}
	}
	return skipped
}

// callsListener reports whether a URL is that of the HTTP endpoint of a Switchboard on this machine that listens at the address.
func callsListener(url, listen string) bool {
	u, err := neturl.Parse(url)
	host, port, splitErr := net.SplitHostPort(listen)
	if err != nil || splitErr != nil || u.Port() != port || u.Path != "/mcp" && !strings.HasPrefix(u.Path, "/mcp/") {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == host || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// sameMeaning reports whether a server a of the configuration is the same program or address as b, called in the same way.
func sameMeaning(a, b *switchboard.Server) bool {
	return a.Transport == b.Transport && a.URL == b.URL && slices.Equal(a.Command, b.Command) && a.Dir == b.Dir &&
		sameSecrets(a.Headers, b.Headers) && sameSecrets(a.Env, b.Env) && sameRegistration(&a.Credential, &b.Credential)
}

// sameSecrets compares settings. An empty value counts as absent, because switchboard.yaml cannot say it.
func sameSecrets(a, b map[string]switchboard.Secret) bool {
	for _, m := range []map[string]switchboard.Secret{a, b} {
		for name := range m {
			if a[name].Reveal() != b[name].Reveal() {
				return false
			}
		}
	}
	return true
}

type importWriter struct {
	reader  *reader
	secrets []SecretFile
	names   map[string]bool        // of secrets
	has     func(name string) bool // Present.HasSecret
}

// makeRow returns the row of one server; ok is false if switchboard.yaml cannot express the server.
func (w *importWriter) makeRow(f *foreignServer) (row edit.Server, ok bool) {
	row.ID = f.ID
	if string(f.ID) != f.Name {
		row.Comment = lineComment(f.Name)
	}
	before := len(w.secrets)
	var why string
	if f.url != nil {
		url, bad := w.resolveText(f, *f.url, "address")
		why = cmp.Or(bad, endpoint.BadURL(url))
		if why == "" && switchboard.CredentialValue(url) {
			f.addRemark(secretAddress)
		}
		headers, bad := w.makeSettings(f, "headers", f.headers)
		why = cmp.Or(why, bad)
		row.Settings = append(append([]edit.Setting{edit.Text("transport", "http"), edit.Text("url", url)}, headers...), makeCredential(f)...)
	} else {
		row.Settings = append(row.Settings, edit.Text("transport", "stdio"))
		base, words := w.reader.workspace(), make([]string, len(f.command))
		if f.dir != nil {
			dir, bad := w.resolveText(f, *f.dir, "folder")
			why = cmp.Or(why, bad)
			base = endpoint.Absolute(base, dir)
			row.Settings = append(row.Settings, edit.Text("dir", escapeReferences(base)))
		}
		for i, c := range f.command {
			word, bad := w.resolveText(f, c, "arguments")
			why = cmp.Or(why, bad)
			if i == 0 && strings.ContainsRune(filepath.ToSlash(word), '/') {
				word = endpoint.Absolute(base, word)
			}
			words[i] = escapeReferences(word)
		}
		env, bad := w.makeSettings(f, "env", f.env)
		why = cmp.Or(why, bad)
		row.Settings = append(append(row.Settings, edit.List("command", words...)), env...)
		if f.sandbox != "" {
			row.Settings = append(row.Settings, edit.Text("sandbox", string(f.sandbox)))
		}
	}
	row.Settings = append(row.Settings, makeTimeout(f)...)
	if why != "" {
		w.secrets = w.secrets[:before]
		f.ID = ""
		f.addNote("left out: %s", why)
		return row, false
	}
	return row, true
}

// resolveText returns a text with all references resolved, for keys of switchboard.yaml that accept no
// references. bad says why that is not possible.
func (w *importWriter) resolveText(f *foreignServer, s foreignSetting, what string) (text, bad string) {
	var b strings.Builder
	for _, p := range s.parts {
		if p.Kind == "env" || p.Kind == "default" {
			if switchboard.CredentialName(p.Text) {
				return "", fmt.Sprintf("its %s would show the secret %s; hand it over in headers or env", what, p.Text)
			}
			f.addNote("the variable %s in its %s has been put in as it is now", p.Text, what)
		}
		value, err := w.reader.resolveForeignPiece(p)
		if err != nil {
			return "", err.Error()
		}
		b.WriteString(value)
	}
	text = b.String()
	if strings.ContainsAny(text, "\x00\n\r") || len(text) > endpoint.MaxText {
		return "", fmt.Sprintf("its %s hold a line break or a NUL, or are too long", what)
	}
	if what == "arguments" && switchboard.CredentialValue(text) {
		f.addRemark(secretArgument)
	}
	return text, ""
}

// makeSettings returns the setting of a server's headers or variables, or none if there are none.
func (w *importWriter) makeSettings(f *foreignServer, key string, settings []foreignSetting) (out []edit.Setting, bad string) {
	var pairs []edit.Setting
	for _, s := range settings {
		text, bad := w.formatSetting(f, s, key)
		switch {
		case bad != "":
			return nil, fmt.Sprintf("the value of %s %s", s.name, bad)
		case text == "":
			f.addNote("%s is left out: it is empty", s.name)
		default:
			pairs = append(pairs, edit.Text(s.name, text))
		}
	}
	if len(pairs) == 0 {
		return nil, ""
	}
	return []edit.Setting{edit.Map(key, pairs...)}, ""
}

// formatSetting returns one header or variable in the form of switchboard.yaml.
func (w *importWriter) formatSetting(f *foreignServer, s foreignSetting, key string) (text, bad string) {
	var b strings.Builder
	references := 0
	for _, p := range s.parts {
		switch p.Kind {
		case "env":
			references++
			b.WriteString("${env:" + p.Text + "}")
		case "workspace":
			b.WriteString(escapeReferences(w.reader.workspace()))
		case "default":
			if now, ok := w.reader.opts.Env(p.Text); ok && now != "" {
				references++
				b.WriteString("${env:" + p.Text + "}")
				f.addNote("the variable %s is set now, so that its default is left out", p.Text)
				continue
			}
			b.WriteString(escapeReferences(p.Fallback))
		default:
			b.WriteString(escapeReferences(p.Text))
		}
	}
	text = b.String()
	// The result is parsed again: it is written only if it has the same meaning.
	back, err := document.SplitReferences(text)
	if err != nil {
		return "", "cannot be said in switchboard.yaml"
	}
	var literal strings.Builder
	secret := switchboard.CredentialName(s.name)
	for _, p := range back {
		if p.Kind == "env" {
			references--
			continue
		}
		secret = secret || switchboard.CredentialValue(p.Text)
		literal.WriteString(p.Text)
	}
	refers := slices.ContainsFunc(back, func(p document.Piece) bool { return p.Kind == "env" })
	whole := literal.String()
	switch {
	case references != 0:
		return "", "has a $ in front of a variable, which cannot be said in switchboard.yaml"
	case strings.Contains(whole, "\x00"), key == "headers" && !endpoint.HeaderValue(whole), strings.HasSuffix(whole, "\r"), len(whole) > document.MaxSecretBytes:
		return "", "holds a control character, or is too long"
	case !secret || refers && switchboard.CredentialName(s.name) && !switchboard.CredentialValue(whole):
		return text, ""
	case refers:
		return "", "mixes a secret with a variable; put the whole into one variable"
	case whole == "":
		return "", ""
	}
	return "${file:" + w.addSecret(string(f.ID), s.name, whole) + "}", ""
}

// addSecret records a secret and returns the file for it.
func (w *importWriter) addSecret(server, name, content string) string {
	file := SecretName(switchboard.ServerID(server), name, func(file string) bool { return w.names[file] || w.has != nil && w.has(file) })
	w.names[file] = true
	w.secrets = append(w.secrets, NewSecretFile(file, content))
	return file
}

// NewSecretFile returns a file with the content as its secret.
func NewSecretFile(name, content string) SecretFile {
	return SecretFile{name, switchboard.NewSecret(content + "\n")} // reading removes this one line break again
}

// SecretName returns the SecretFile.Name for a server's header or variable: the first one that is not taken.
func SecretName(server switchboard.ServerID, name string, taken func(file string) bool) string {
	base := SecretFolder + "/" + string(server) + "-" + strings.ReplaceAll(strings.ToLower(name), "_", "-")
	file := base
	for n := 2; taken(file); n++ {
		file = base + "-" + strconv.Itoa(n)
	}
	return file
}

// escapeReferences escapes a literal text for a value that may contain references.
func escapeReferences(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// lineComment quotes a text for a comment at the end of a line.
func lineComment(s string) string { return document.Shown(s) }
