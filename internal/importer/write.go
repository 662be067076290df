package importer

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/endpoint"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A SecretFile is a secret that Convert took from another program's file.
type SecretFile struct {
	// Name is the path to write it to, with slashes, relative to the folder of switchboard.yaml.
	Name string

	// Content is the whole content of the file.
	Content switchboard.Secret
}

// SecretMode is the file mode of a SecretFile; SecretFolder is the folder of all of them.
const (
	SecretMode   os.FileMode = 0o600
	SecretFolder             = "secrets"
)

// Convert reads another program's file of MCP servers. It returns the text of a switchboard.yaml, and the
// secrets that the text refers to. The caller writes them. Convert leaves out servers with faults, and servers
// that switchboard.yaml cannot express; the Mapping gives the reasons. The error is switchboard.Faults in the
// file, or says that no server is left.
func Convert(file string, opts config.Options) (text []byte, secrets []SecretFile, mapping Mapping, err error) {
	r := newReader(file, opts)
	found := r.readServers()
	w := &importWriter{reader: r, names: map[string]bool{}}
	fmt.Fprintf(&w.out, "# Imported from %s by switchboard import.\nservers:", lineComment(filepath.Base(file)))
	written := 0
	for _, f := range found {
		if len(f.sink.Faults) > 0 {
			f.ID = ""
			for _, fault := range f.sink.Faults {
				f.addNote("left out: %s", fault)
			}
		} else if f.use && w.writeServer(f) {
			written++
		}
		mapping = append(mapping, f.Mapped)
	}
	w.out.WriteString("\n")
	if written == 0 && len(r.sink.Faults) == 0 {
		r.sink.Add(switchboard.Fault{File: file, Text: "no server is left to import"})
	}
	if err := r.sink.Err(file); err != nil {
		return nil, nil, mapping, err
	}
	return []byte(w.out.String()), w.secrets, mapping, nil
}

type importWriter struct {
	reader  *reader
	out     strings.Builder
	secrets []SecretFile
	names   map[string]bool // of secrets
}

// writeServer writes one server, and reports whether it could.
func (w *importWriter) writeServer(f *foreignServer) bool {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "\n    "+format, args...) }
	fmt.Fprintf(&b, "\n  %s:", document.Quote(string(f.ID)))
	if string(f.ID) != f.Name {
		fmt.Fprintf(&b, " # %s", lineComment(f.Name))
	}
	before := len(w.secrets)
	var why string
	if f.url != nil {
		url, bad := w.resolveText(f, *f.url, "address")
		why = cmp.Or(bad, endpoint.BadURL(url))
		if why == "" && switchboard.CredentialValue(url) {
			f.addRemark(secretAddress)
		}
		line("transport: http")
		line("url: %s", document.Quote(url))
		why = cmp.Or(why, w.writeSettings(f, line, "headers", f.headers))
	} else {
		line("transport: stdio")
		base, words := w.reader.workspace(), make([]string, len(f.command))
		if f.dir != nil {
			dir, bad := w.resolveText(f, *f.dir, "folder")
			why = cmp.Or(why, bad)
			base = endpoint.Absolute(base, dir)
			line("dir: %s", document.Quote(escapeReferences(base)))
		}
		for i, c := range f.command {
			word, bad := w.resolveText(f, c, "arguments")
			why = cmp.Or(why, bad)
			if i == 0 && strings.ContainsRune(filepath.ToSlash(word), '/') {
				word = endpoint.Absolute(base, word)
			}
			words[i] = document.Quote(escapeReferences(word))
		}
		line("command: [%s]", strings.Join(words, ", "))
		why = cmp.Or(why, w.writeSettings(f, line, "env", f.env))
	}
	if why != "" {
		w.secrets = w.secrets[:before]
		f.ID = ""
		f.addNote("left out: %s", why)
		return false
	}
	w.out.WriteString(b.String())
	return true
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

// writeSettings writes the headers or variables of a server.
func (w *importWriter) writeSettings(f *foreignServer, line func(string, ...any), key string, settings []foreignSetting) (bad string) {
	var lines []string
	for _, s := range settings {
		text, bad := w.formatSetting(f, s, key)
		switch {
		case bad != "":
			return fmt.Sprintf("the value of %s %s", s.name, bad)
		case text == "":
			f.addNote("%s is left out: it is empty", s.name)
		default:
			lines = append(lines, document.Quote(s.name)+": "+document.Quote(text))
		}
	}
	if len(lines) > 0 {
		line("%s:", key)
	}
	for _, l := range lines {
		line("  %s", l)
	}
	return ""
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
	base := SecretFolder + "/" + server + "-" + strings.ReplaceAll(strings.ToLower(name), "_", "-")
	file := base
	for n := 2; w.names[file]; n++ {
		file = base + "-" + strconv.Itoa(n)
	}
	w.names[file] = true
	// Reading the file removes this one line break again.
	w.secrets = append(w.secrets, SecretFile{file, switchboard.NewSecret(content + "\n")})
	return file
}

// escapeReferences escapes a literal text for a value that may contain references.
func escapeReferences(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// lineComment quotes a text for a comment at the end of a line.
func lineComment(s string) string { return document.Shown(s) }
