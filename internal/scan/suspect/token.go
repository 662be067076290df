package suspect

import (
	"strings"
	"unicode/utf8"
)

// A token is a word of a text, with its kinds.
type token struct {
	class    class
	from, to int
}

// A textReader divides texts into sentences, and finds the patterns of rules in them.
type textReader struct {
	words  *wordKinds
	shapes shapes
	known  func(name string) nameKind
	lower  []byte
	tokens []token
}

// shapes are the classes of words with signs.
type shapes struct{ url, mail, place, ident, peer, mark, image, number, raw class }

func (v *wordKinds) newShapes() shapes {
	return shapes{v.class("url"), v.class("mail"), v.class("place"), v.class("ident"), v.class("peer"), v.class("mark"), v.class("image"), v.class("number"), v.class("raw")}
}

// sentences calls f with the words of each sentence of the text, and the union of their classes.
func (r *textReader) sentences(text string, f func(words []token, any class)) {
	var any class
	r.tokens = r.tokens[:0]
	end := func() {
		if len(r.tokens) > 0 {
			f(r.tokens, any)
		}
		r.tokens, any = r.tokens[:0], class{}
	}
	for at := 0; at < len(text); {
		from := at
		for at < len(text) && isSpace(text[at]) {
			at++
		}
		if isBreak(text[from:at], text[at:]) {
			end()
		}
		from = at
		for at < len(text) && !isSpace(text[at]) {
			at++
		}
		if at > from {
			c := r.classOf(text[from:at])
			r.tokens, any = append(r.tokens, token{c, from, at}), any.or(c)
			if last := text[at-1]; last == '.' || last == '!' || last == '?' {
				if !isShortForm(text[from:at]) {
					end()
				}
			}
		}
	}
	end()
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// isBreak reports whether a space ends a sentence: an empty line, or a line feed before a list's item or a heading.
func isBreak(space, rest string) bool {
	n := strings.Count(space, "\n")
	return n > 1 || n == 1 && rest != "" && strings.ContainsRune("-*#", rune(rest[0]))
}

func isShortForm(word string) bool {
	return word == "e.g." || word == "i.e." || word == "etc." || word == "vs."
}

// classOf returns the kinds of a word with the signs around it.
func (r *textReader) classOf(word string) class {
	c := r.shapeOf(word)
	core := strings.TrimFunc(word, func(x rune) bool {
		return x < utf8.RuneSelf && !isLetter(x) && (x < '0' || x > '9')
	})
	if core == "" {
		core = word
	}
	if i := strings.LastIndexByte(core, '/'); i >= 0 {
		c = c.or(r.kindsOf(core[i+1:]))
	}
	if len(core) > 40 {
		return c
	}
	if strings.HasPrefix(word, "-") { // an option of a command
		c = c.or(r.kindsOf(word))
	}
	return c.or(r.kindsOf(core))
}

func (r *textReader) kindsOf(word string) class {
	r.lower = r.lower[:0]
	for i := 0; i < len(word); i++ {
		switch b := word[i]; {
		case 'A' <= b && b <= 'Z':
			r.lower = append(r.lower, b+'a'-'A')
		case strings.HasPrefix(word[i:], "’"):
			r.lower = append(r.lower, '\'')
			i += len("’") - 1
		default:
			r.lower = append(r.lower, b)
		}
	}
	return r.words.kinds[string(r.lower)]
}

// shapeOf returns the kinds of a word with signs in it.
func (r *textReader) shapeOf(word string) (c class) {
	signs := strings.IndexFunc(word, func(x rune) bool { return !isLetter(x) })
	if signs < 0 {
		return r.nameShape(word)
	}
	if isMark(word) {
		c = c.or(r.shapes.mark)
	}
	switch {
	case strings.Contains(word, "://"):
		c = c.or(r.shapes.url)
		if strings.Contains(word, "](http") && strings.Contains(word, "![") {
			c = c.or(r.shapes.image)
		}
		if hasNumberHost(word) {
			c = c.or(r.shapes.number)
		}
	case strings.Contains(word, "/dev/tcp/"), strings.Contains(word, "/dev/udp/"):
		c = c.or(r.shapes.raw)
	case isMail(word):
		c = c.or(r.shapes.mail)
	}
	if isSecretPlace(word) {
		c = c.or(r.shapes.place)
	}
	return c.or(r.nameShape(strings.Trim(word, "`'\"()[]{}<>*.,;:!?=$")))
}

// nameShape returns the kinds of a word that may be the name of a tool.
func (r *textReader) nameShape(word string) class {
	if !isIdentifier(word) {
		return class{}
	}
	switch r.known(word) {
	case nameOfPeer:
		return r.shapes.peer.or(r.shapes.ident)
	case nameUnknown:
		return r.shapes.ident
	}
	return class{}
}

// isIdentifier reports whether a word is written like a name in a program, of at least two parts: read_file, read-file, readFile.
func isIdentifier(word string) bool {
	if len(word) < 5 || len(word) > 64 {
		return false
	}
	parts := false
	for i := range len(word) {
		switch c := word[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case 'A' <= c && c <= 'Z':
			if i == 0 {
				return false // the name of a product, rather than of a tool
			}
			parts = parts || 'a' <= word[i-1] && word[i-1] <= 'z'
		case c == '_':
			parts = parts || i > 0 && i < len(word)-1
		default:
			return false
		}
	}
	return parts
}

// hasNumberHost reports whether the host of an address is a number.
func hasNumberHost(word string) bool {
	_, host, _ := strings.Cut(word, "://")
	return len(host)-len(strings.TrimLeft(host, "0123456789.")) >= len("1.1.1.1")
}

func isMail(word string) bool {
	at := strings.IndexByte(word, '@')
	return at > 0 && strings.IndexByte(word[at:], '.') > 1
}

// isMark reports whether a word imitates the marks between the parts of a model's input: <SYSTEM>, [INST], SYSTEM:, <|im_start|>.
func isMark(word string) bool {
	switch {
	case strings.Contains(word, "<|") && strings.Contains(word, "|>"):
		return true
	case word[0] != '<' && word[0] != '[':
		name, _, ok := strings.Cut(word, ":")
		return ok && (name == "SYSTEM" || name == "ASSISTANT" || name == "ADMIN")
	}
	name := strings.ToLower(strings.Trim(word[1:], "<>[]/:"))
	if i := strings.IndexAny(name, ">]"); i >= 0 {
		name = name[:i]
	}
	switch name {
	case "system", "important", "inst", "secret", "instructions", "instruction", "assistant", "admin", "hidden", "critical", "sys", "system_prompt", "system-prompt", "override":
		return word[0] == '<' || strings.ToUpper(word) == word || strings.Contains(word, "]")
	}
	return false
}

// secretPlaces are parts of the paths of files with secrets. A / at the end stands for a folder, a $ for the end of the path.
var secretPlaces = []string{
	".ssh", "id_rsa", "id_ed25519", "id_ecdsa", "/etc/passwd", "/etc/shadow", "/etc/sudoers", ".aws/", ".azure/", "gcloud/", "application_default_credentials", ".netrc",
	".npmrc", ".pypirc", ".pgpass", ".git-credentials", ".kube/", ".docker/config.json", ".gnupg", ".bash_history", ".zsh_history", "mcp.json", "claude_desktop_config",
	".cursor/", ".mozilla/", "google/chrome/", "firefox/profiles", "/cookies", ".vault-token", "/proc/self/environ", "169.254.169.254", "metadata.google.internal", "login.keychain", "wallet.dat", "keystore", "process.env", "os.environ",
}

// isSecretPlace reports whether a word is the path of a file that holds secrets. Public keys, and the templates of such files, hold none.
func isSecretPlace(word string) bool {
	if len(word) < 4 || strings.Contains(word, "://") && !strings.Contains(word, "169.254.169.254") && !strings.Contains(word, "metadata.google.internal") {
		return false
	}
	low := strings.ToLower(strings.Trim(word, "`'\"()[]{}<>*,;:!?"))
	low = strings.TrimRight(low, ".")
	if strings.HasSuffix(low, ".pub") || strings.Contains(low, "example") || strings.HasSuffix(low, "authorized_keys") || strings.HasSuffix(low, "known_hosts") {
		return false
	}
	if low == ".env" || strings.HasSuffix(low, "/.env") || strings.HasSuffix(low, "*.env") || strings.HasSuffix(low, "*.pem") || strings.HasSuffix(low, "*.key") {
		return true
	}
	for _, part := range secretPlaces {
		if strings.Contains(low, part) {
			return true
		}
	}
	return false
}

// isLetter reports whether the character is a letter of ASCII.
func isLetter(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }
