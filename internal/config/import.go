package config

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A SecretFile is a secret that Import took out of another program's file.
type SecretFile struct {
	// Name is where to write it, with slashes, relative to the folder of
	// switchboard.yaml.
	Name string

	// Content is what to write, whole.
	Content switchboard.Secret
}

// SecretMode is the mode of a SecretFile, and SecretFolder where they are.
const (
	SecretMode   os.FileMode = 0o600
	SecretFolder             = "secrets"
)

// Import turns the file in which another program keeps its MCP servers into
// the text of a switchboard.yaml, and into the secrets that the text refers to.
// Nothing is written: that is for the caller. Servers with which something is
// wrong, or that cannot be said in switchboard.yaml, are left out, and the
// Mapping says why. The error is Faults: of the file, or where no server is left.
func Import(file string, opts Options) (text []byte, secrets []SecretFile, mapping Mapping, err error) {
	l, found := readForeign(file, opts)
	defer l.close()
	w := &importer{l: l, names: map[string]bool{}}
	fmt.Fprintf(&w.out, "# Imported from %s by switchboard import.\nservers:", comment(filepath.Base(file)))
	written := 0
	for _, f := range found {
		if len(f.sink.faults) > 0 {
			f.ID = ""
			for _, fault := range f.sink.faults {
				f.note("left out: %s", fault)
			}
		} else if f.use && w.server(f) {
			written++
		}
		mapping = append(mapping, f.Mapped)
	}
	w.out.WriteString("\n")
	if written == 0 && len(l.sink.faults) == 0 {
		l.sink.add(Fault{File: file, Text: "no server is left to import"})
	}
	if err := l.sink.err(file); err != nil {
		return nil, nil, mapping, err
	}
	return []byte(w.out.String()), w.secrets, mapping, nil
}

type importer struct {
	l       *loader
	out     strings.Builder
	secrets []SecretFile
	names   map[string]bool // of secrets
}

// server writes one server, and reports whether it could.
func (w *importer) server(f *foreign) bool {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "\n    "+format, args...) }
	fmt.Fprintf(&b, "\n  %s:", quote(string(f.ID)))
	if string(f.ID) != f.Name {
		fmt.Fprintf(&b, " # %s", comment(f.Name))
	}
	before := len(w.secrets)
	var why string
	if f.url != nil {
		url, bad := w.word(f, *f.url, "address")
		why = cmp.Or(bad, badURL(url))
		if why == "" && switchboard.CredentialValue(url) {
			f.remark(secretAddress)
		}
		line("transport: http")
		line("url: %s", quote(url))
		why = cmp.Or(why, w.settings(f, line, "headers", f.headers))
	} else {
		line("transport: stdio")
		base, words := w.l.workspace(), make([]string, len(f.command))
		if f.dir != nil {
			dir, bad := w.word(f, *f.dir, "folder")
			why = cmp.Or(why, bad)
			base = within(base, dir)
			line("dir: %s", quote(escape(base)))
		}
		for i, c := range f.command {
			word, bad := w.word(f, c, "arguments")
			why = cmp.Or(why, bad)
			if i == 0 && strings.ContainsRune(filepath.ToSlash(word), '/') {
				word = within(base, word)
			}
			words[i] = quote(escape(word))
		}
		line("command: [%s]", strings.Join(words, ", "))
		why = cmp.Or(why, w.settings(f, line, "env", f.env))
	}
	if why != "" {
		w.secrets = w.secrets[:before]
		f.ID = ""
		f.note("left out: %s", why)
		return false
	}
	w.out.WriteString(b.String())
	return true
}

// word returns a text of which switchboard.yaml reads no reference, with
// everything put in, or says why there is none.
func (w *importer) word(f *foreign, s setting, what string) (text, bad string) {
	var b strings.Builder
	for _, p := range s.parts {
		if p.kind == "env" || p.kind == "default" {
			if switchboard.CredentialName(p.text) {
				return "", fmt.Sprintf("its %s would show the secret %s; hand it over in headers or env", what, p.text)
			}
			f.note("the variable %s in its %s has been put in as it is now", p.text, what)
		}
		value, err := w.l.foreignResolve(p)
		if err != nil {
			return "", err.Error()
		}
		b.WriteString(value)
	}
	text = b.String()
	if strings.ContainsAny(text, "\x00\n\r") || len(text) > maxText {
		return "", fmt.Sprintf("its %s hold a line break or a NUL, or are too long", what)
	}
	if what == "arguments" && switchboard.CredentialValue(text) {
		f.remark(secretArgument)
	}
	return text, ""
}

// settings writes the headers or variables of a server.
func (w *importer) settings(f *foreign, line func(string, ...any), key string, settings []setting) (bad string) {
	var lines []string
	for _, s := range settings {
		text, bad := w.setting(f, s, key)
		switch {
		case bad != "":
			return fmt.Sprintf("the value of %s %s", s.name, bad)
		case text == "":
			f.note("%s is left out: it is empty", s.name)
		default:
			lines = append(lines, quote(s.name)+": "+quote(text))
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

// setting returns one header or variable as switchboard.yaml says it.
func (w *importer) setting(f *foreign, s setting, key string) (text, bad string) {
	var b strings.Builder
	references := 0
	for _, p := range s.parts {
		switch p.kind {
		case "env":
			references++
			b.WriteString("${env:" + p.text + "}")
		case "workspace":
			b.WriteString(escape(w.l.workspace()))
		case "default":
			if now, ok := w.l.opts.Env(p.text); ok && now != "" {
				references++
				b.WriteString("${env:" + p.text + "}")
				f.note("the variable %s is set now, so that its default is left out", p.text)
				continue
			}
			b.WriteString(escape(p.fallback))
		default:
			b.WriteString(escape(p.text))
		}
	}
	text = b.String()
	// Read it back: only what says the same may be written.
	back, err := parts(text)
	if err != nil {
		return "", "cannot be said in switchboard.yaml"
	}
	var literal strings.Builder
	secret := switchboard.CredentialName(s.name)
	for _, p := range back {
		if p.kind == "env" {
			references--
			continue
		}
		secret = secret || switchboard.CredentialValue(p.text)
		literal.WriteString(p.text)
	}
	refers := slices.ContainsFunc(back, func(p part) bool { return p.kind == "env" })
	whole := literal.String()
	switch {
	case references != 0:
		return "", "has a $ in front of a variable, which cannot be said in switchboard.yaml"
	case strings.Contains(whole, "\x00"), key == "headers" && !headerValue(whole), strings.HasSuffix(whole, "\r"), len(whole) > maxSecretBytes:
		return "", "holds a control character, or is too long"
	case !secret || refers && switchboard.CredentialName(s.name) && !switchboard.CredentialValue(whole):
		return text, ""
	case refers:
		return "", "mixes a secret with a variable; put the whole into one variable"
	case whole == "":
		return "", ""
	}
	return "${file:" + w.secret(string(f.ID), s.name, whole) + "}", ""
}

// secret notes a secret and returns the file that it goes into.
func (w *importer) secret(server, name, content string) string {
	base := SecretFolder + "/" + server + "-" + strings.ReplaceAll(strings.ToLower(name), "_", "-")
	file := base
	for n := 2; w.names[file]; n++ {
		file = base + "-" + strconv.Itoa(n)
	}
	w.names[file] = true
	// The line break is cut off again when it is read, and with it no more.
	w.secrets = append(w.secrets, SecretFile{file, switchboard.NewSecret(content + "\n")})
	return file
}

// escape makes a literal of a text that is to stand among references.
func escape(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// comment makes a text fit for the end of a line.
func comment(s string) string { return shown(s) }

// quote returns s as YAML: plain where every reader takes it for the same
// text, else in double quotes, with nothing in it that is not printed.
func quote(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= ' ' && r < 0x7f:
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			fmt.Fprintf(&b, `\U%08X`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func plain(s string) bool {
	if s == "" || len(s) > 200 || !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/", rune(s[0])) {
		return false
	}
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf":
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-@") == ""
}
