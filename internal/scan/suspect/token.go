package suspect

import (
	"strings"
	"unicode/utf8"
)

// A textReader divides texts into sentences and words, and gives the words their kinds.
type textReader struct {
	lexis  *lexis
	known  func(name string) nameKind
	keyOf  bool                  // the word before says what a key is for
	shaped map[class]*lexisEntry // of words whose kinds come from their shape too
}

// A lexis is what all readers share: the words of the lexicon, the classes of words with signs, and the patterns.
type lexis struct {
	*wordKinds
	shapes                         shapes
	machine                        *machine
	detect, keyOf, keyWord, secret class
	// The beginning of a sentence, and its end, as words.
	sentenceBegin, sentenceEnd *lexisEntry
	entries                    []lexisSlot // see slotOf
	// filter has a bit for each length of a word of the lexicon, by its first and last byte: most words of a text are not in the lexicon.
	filter [32][32]uint64
}

// A lexisEntry is a word of the lexicon, or what words of one shape have in common.
type lexisEntry struct {
	word  string
	class class
	refs  []stepRef

	not, keyOf, keyWord bool // it has this kind
}

func (l *lexis) newEntry(word string, c class) *lexisEntry {
	return &lexisEntry{word, c, l.machine.refs(c), c.meets(l.machine.not), c.meets(l.keyOf), c.meets(l.keyWord)}
}

type lexisSlot struct {
	hash  wordHash
	entry *lexisEntry // nil if the slot is free
}

type wordHash uint32

func hashOf(word string) (h wordHash) {
	for i := range len(word) {
		h = h*31 + wordHash(word[i])
	}
	return h
}

// slotOf returns where a table of a power of two entries has a word with the hash, or has it next.
func slotOf(h wordHash, size int) int { return int(uint32(h)*0x9e3779b1>>8) & (size - 1) }

// shapes are the classes of words with signs.
type shapes struct{ url, mail, place, ident, peer, mark, image, number, raw, obscured class }

func newLexis() *lexis {
	v := words()
	l := &lexis{wordKinds: v, machine: newMachine(v)}
	l.shapes = shapes{v.class("url"), v.class("mail"), v.class("place"), v.class("ident"), v.class("peer"), v.class("mark"), v.class("image"), v.class("number"), v.class("raw"), v.class("obscured")}
	l.keyOf, l.keyWord, l.secret = v.class("keyOf"), v.class("keyWord"), v.class("secret")
	l.detect = v.class("detect")
	l.sentenceBegin, l.sentenceEnd = l.newEntry("", v.class("begin")), l.newEntry("", v.class("end"))
	size := 1
	for size < 4*len(v.kinds) { // so that most words have their own slot
		size *= 2
	}
	l.entries = make([]lexisSlot, size)
	for word, c := range v.kinds {
		h := hashOf(word)
		i := slotOf(h, size)
		for l.entries[i].entry != nil {
			i = (i + 1) % size
		}
		l.entries[i] = lexisSlot{h, l.newEntry(word, c)}
		l.filter[word[0]%32][word[len(word)-1]%32] |= 1 << len(word)
	}
	return l
}

// maxWord is the number of bytes of the longest word that may be in the lexicon.
const maxWord = 40

// entry returns the word of the lexicon, or nil. Capital letters count as small ones, and a curly apostrophe as a straight one.
func (l *lexis) entry(word string) *lexisEntry {
	if word == "" || len(word) > maxWord || !l.mayHave(word) && word[len(word)-1] < utf8.RuneSelf && !strings.Contains(word, "’") {
		return nil
	}
	return l.find(word)
}

// mayHave reports whether the lexicon may have a word without curly apostrophes, of 1 to maxWord bytes.
func (l *lexis) mayHave(word string) bool {
	return l.filter[word[0]%32][word[len(word)-1]%32]>>len(word)&1 != 0
}

// find is entry for a word of at most maxWord bytes.
func (l *lexis) find(word string) *lexisEntry {
	var lower [maxWord]byte
	n := 0
	for i := 0; i < len(word); i++ {
		switch b := word[i]; {
		case 'A' <= b && b <= 'Z':
			lower[n] = b + 'a' - 'A'
		case b == "’"[0] && strings.HasPrefix(word[i:], "’"):
			lower[n] = '\''
			i += len("’") - 1
		default:
			lower[n] = b
		}
		n++
	}
	return l.findSmall(string(lower[:n]))
}

// findSmall is find for a word without capital letters and curly apostrophes.
func (l *lexis) findSmall(word string) *lexisEntry {
	h := hashOf(word)
	for i := slotOf(h, len(l.entries)); ; i = (i + 1) & (len(l.entries) - 1) {
		switch s := &l.entries[i]; {
		case s.entry == nil:
			return nil
		case s.hash == h && s.entry.word == word:
			return s.entry
		}
	}
}

// A byteKind is a set of kinds of bytes.
type byteKind uint8

const (
	smallByte byteKind = 1 << iota
	capitalByte
	closingByte // signs that often stand behind or before a word
	otherByte
	spaceByte
)

var byteKinds = func() (all [256]byteKind) {
	for i := range all {
		switch c := byte(i); {
		case 'a' <= c && c <= 'z':
			all[i] = smallByte
		case 'A' <= c && c <= 'Z':
			all[i] = capitalByte
		case isSpace(c):
			all[i] = spaceByte
		case strings.IndexByte(".,;:!?()\"'", c) >= 0:
			all[i] = closingByte
		default:
			all[i] = otherByte
		}
	}
	return all
}()

// read calls word with each word, nil for one without kinds, and end after each sentence with words.
func (r *textReader) read(text string, word func(e *lexisEntry, from, to int), end func()) {
	any := false
	for at := 0; at < len(text); {
		from := at
		for at < len(text) && byteKinds[text[at]] == spaceByte {
			at++
		}
		if any && isBreak(text[from:at], text[at:]) {
			end()
			any = false
		}
		from = at
		var has byteKind
		for at < len(text) {
			k := byteKinds[text[at]]
			if k == spaceByte {
				break
			}
			has |= k
			at++
		}
		if at == from {
			break
		}
		any = true
		if has&^(smallByte|capitalByte|closingByte) == 0 {
			word(r.plainWord(text[from:at], has), from, at)
		} else {
			word(r.shapedWord(text[from:at]), from, at)
		}
		if last := text[at-1]; (last == '.' || last == '!' || last == '?') && !isShortForm(text[from:at]) {
			end()
			any = false
		}
	}
	if any {
		end()
	}
}

// plainWord returns a word of letters, with signs around it or between them.
func (r *textReader) plainWord(word string, has byteKind) *lexisEntry {
	core := word
	if has&closingByte != 0 {
		for core != "" && byteKinds[core[0]] == closingByte {
			core = core[1:]
		}
		for core != "" && byteKinds[core[len(core)-1]] == closingByte {
			core = core[:len(core)-1]
		}
		if core == "" || hasClosing(core) || word[len(word)-1] == ':' && has&capitalByte != 0 || word[0] == '.' {
			return r.shapedWord(word)
		}
	}
	if has&(capitalByte|smallByte) == capitalByte|smallByte && isIdentifier(core) {
		return r.shapedWord(word)
	}
	if core == "" || len(core) > maxWord || !r.lexis.mayHave(core) {
		return nil
	}
	if has&capitalByte == 0 {
		return r.lexis.findSmall(core)
	}
	return r.lexis.find(core)
}

// hasClosing reports whether a sign that often stands around a word is in it; an apostrophe does not count.
func hasClosing(word string) bool {
	for i := range len(word) {
		if byteKinds[word[i]] == closingByte && word[i] != '\'' {
			return true
		}
	}
	return false
}

// asKey returns what a word means behind the word before. The word key is a secret after a word such as API.
func (r *textReader) asKey(e *lexisEntry) *lexisEntry {
	was := r.keyOf
	if r.keyOf = e != nil && e.keyOf; !was || e == nil || !e.keyWord {
		return e
	}
	return r.entryOf(e.class.or(r.lexis.secret))
}

// shapedWord returns a word with signs; nil if it has no kinds.
func (r *textReader) shapedWord(word string) *lexisEntry {
	c := r.classOf(word)
	if c == (class{}) {
		return nil
	}
	return r.entryOf(c)
}

// entryOf returns what words of the class have in common.
func (r *textReader) entryOf(c class) *lexisEntry {
	e := r.shaped[c]
	if e == nil {
		if r.shaped == nil {
			r.shaped = map[class]*lexisEntry{}
		}
		e = r.lexis.newEntry("", c)
		r.shaped[c] = e
	}
	return e
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// isBreak reports whether a space ends a sentence: an empty line, or a line feed before a list's item or a heading.
func isBreak(space, rest string) bool {
	if len(space) == 1 && space[0] != '\n' {
		return false
	}
	n := strings.Count(space, "\n")
	return n > 1 || n == 1 && rest != "" && strings.ContainsRune("-*#", rune(rest[0]))
}

// endsClause reports whether a comma, colon, semicolon or dash ends a clause after the word.
func endsClause(word string) bool {
	switch word[len(word)-1] {
	case ',', ';', ':':
		return true
	case '-':
		return len(word) == 1
	}
	return word == "–" || word == "—"
}

// Most words between a word of detection and the text that it governs; between a label and its colon.
const (
	maxReported = 12
	maxLabel    = 5
)

// isReported reports whether a word of detection governs the text that follows before, in the same sentence: a tool that detects an attack describes it. A word that
// is elsewhere in the sentence, or that a dash or semicolon separates from the text, does not govern it, and neither does one before a comma that stands
// right before the text: that is where an order begins.
func (l *lexis) isReported(before string) bool {
	left := maxReported
	for first := true; left > 0; first = false {
		before = strings.TrimRight(before, " \n\t\r")
		word := before[strings.LastIndexAny(before, " \n\t\r")+1:]
		if word == "" {
			return false
		}
		before = before[:len(before)-len(word)]
		switch {
		case word == "-", word == "–", word == "—", strings.HasSuffix(word, ";"), first && strings.HasSuffix(word, ","):
			return false
		case strings.HasSuffix(word, ":"):
			left = min(left, maxLabel)
		}
		if e := l.entry(strings.Trim(word, "`'\"()[]{}<>*.,:!?")); e != nil && e.class.meets(l.detect) {
			return true
		}
		left--
	}
	return false
}

func isShortForm(word string) bool {
	return word == "e.g." || word == "i.e." || word == "etc." || word == "vs."
}

// classOf returns the kinds of a word with the signs around it.
func (r *textReader) classOf(word string) class {
	c := r.shapeOf(word)
	core := word
	for core != "" && isEdge[core[0]] {
		core = core[1:]
	}
	for core != "" && isEdge[core[len(core)-1]] {
		core = core[:len(core)-1]
	}
	if core == "" {
		core = word
	}
	for i := len(core) - 1; i >= 0; i-- {
		if isJoint[core[i]] {
			c = c.or(r.kindsOf(core[i+1:]))
			break
		}
	}
	if len(core) > 40 {
		return c
	}
	if strings.HasPrefix(word, "-") { // an option of a command
		c = c.or(r.kindsOf(word))
	}
	return c.or(r.kindsOf(core))
}

// isEdge says which bytes may stand around a word and belong to no word: those of ASCII that are neither letters nor digits. isJoint says which ones may join words.
var isEdge, isJoint = func() (edge, joint [256]bool) {
	for i := range utf8.RuneSelf {
		edge[i] = !isWordByte(byte(i))
		joint[i] = strings.IndexByte(`/('"`+"`", byte(i)) >= 0
	}
	return edge, joint
}()

func (r *textReader) kindsOf(word string) class {
	if e := r.lexis.entry(word); e != nil {
		return e.class
	}
	return class{}
}

// shapeOf returns the kinds of a word with signs in it.
func (r *textReader) shapeOf(word string) (c class) {
	var paren, letters, bar, slash, colon, at, dot, under bool
	letters = true
	for i := range len(word) {
		switch b := word[i]; b {
		case '(':
			paren, letters = true, false
		case '|':
			bar = true
		case '/':
			slash = true
		case ':':
			colon = true
		case '@':
			at = true
		case '.':
			dot = true
		case '_':
			under = true
		default:
			letters = letters && byteKinds[b]&(smallByte|capitalByte) != 0
		}
	}
	signs := bar || slash || colon || at || dot || under
	if letters && !signs {
		return r.nameShape(word)
	}
	if (bar || colon || word[0] == '<' || word[0] == '[') && isMark(word) {
		c = c.or(r.lexis.shapes.mark)
	}
	switch {
	case colon && slash && strings.Contains(word, "://"):
		c = c.or(r.lexis.shapes.url)
		if strings.Contains(word, "](http") && strings.Contains(word, "![") {
			c = c.or(r.lexis.shapes.image)
		}
		if hasNumberHost(word) {
			c = c.or(r.lexis.shapes.number)
		}
	case slash && (strings.Contains(word, "/dev/tcp/") || strings.Contains(word, "/dev/udp/")):
		c = c.or(r.lexis.shapes.raw)
	case at && isMail(word):
		c = c.or(r.lexis.shapes.mail)
	}
	if paren && isObscured(word) {
		c = c.or(r.lexis.shapes.obscured)
	}
	if (dot || slash || under) && isSecretPlace(word) {
		c = c.or(r.lexis.shapes.place)
	}
	for word != "" && isNameEdge(word[0]) {
		word = word[1:]
	}
	for word != "" && isNameEdge(word[len(word)-1]) {
		word = word[:len(word)-1]
	}
	return c.or(r.nameShape(word))
}

// isNameEdge reports whether a sign may stand around the name of a tool.
func isNameEdge(c byte) bool { return strings.IndexByte("`'\"()[]{}<>*.,;:!?=$", c) >= 0 }

// nameShape returns the kinds of a word that may be the name of a tool.
func (r *textReader) nameShape(word string) class {
	if !isIdentifier(word) {
		return class{}
	}
	switch r.known(word) {
	case nameOfPeer:
		return r.lexis.shapes.peer.or(r.lexis.shapes.ident)
	case nameUnknown:
		return r.lexis.shapes.ident
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

// isObscured reports whether a word is code that decodes something and runs it.
func isObscured(word string) bool {
	word = strings.ToLower(word)
	runs := strings.Contains(word, "eval(") || strings.Contains(word, "exec(") || strings.Contains(word, "function(")
	return runs && (strings.Contains(word, "atob(") || strings.Contains(word, "b64decode(") || strings.Contains(word, "fromcharcode(") || strings.Contains(word, "unhexlify("))
}

// hasNumberHost reports whether the host of an address is a number, and not one of a network at home.
func hasNumberHost(word string) bool {
	_, host, _ := strings.Cut(word, "://")
	for _, home := range []string{"127.", "0.0.0.0", "10.", "192.168."} {
		if strings.HasPrefix(host, home) {
			return false
		}
	}
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
	case word[0] == '<' && strings.ContainsRune(",.;)`'\"", rune(word[len(word)-1])) && strings.ToLower(word) == word && strings.HasSuffix(word[:len(word)-1], ">"):
		return false // <secret>, in the description of a command stands for a value
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
	".cursor/", ".mozilla/", "google/chrome/", "firefox/profiles", "/cookies", ".vault-token", "/proc/self/environ", "169.254.169.254", "metadata.google.internal", "login.keychain", ".config/gh/", ".my.cnf", ".s3cfg", ".boto", ".dockercfg", ".password-store", ".terraformrc", "credentials.tfrc", "id_dsa", "/var/run/secrets/", "library/keychains", "/proc/self/", "credentials.json", "secrets.json", "secrets.yaml", "secrets.yml", ".claude.json", ".codex/auth", "wallet.dat", ".keystore", "process.env", "os.environ",
}

// isSecretPlace reports whether a word is the path of a file that holds secrets. Public keys, and the templates of such files, hold none.
func isSecretPlace(word string) bool {
	if len(word) < 4 || !strings.ContainsAny(word, "._/") || strings.Contains(word, "://") && !strings.Contains(word, "169.254.169.254") && !strings.Contains(word, "metadata.google.internal") {
		return false
	}
	if !mayBeSecretPlace(word) {
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
	for i := range len(low) {
		for _, part := range secretPlacesFrom[low[i]] {
			if rest, ok := strings.CutPrefix(low[i:], part); ok && (rest == "" || !isWordByte(rest[0]) || !isWordByte(part[len(part)-1])) {
				return true
			}
		}
	}
	return false
}

// mayBeSecretPlace reports whether the word has, in small or capital letters, the first two bytes of something that isSecretPlace looks for.
func mayBeSecretPlace(word string) bool {
	for i := range len(word) - 1 {
		if word[i] >= utf8.RuneSelf || secretPairs[pairOf(word[i], word[i+1])] {
			return true // a letter that is not of ASCII can be a capital letter of one that is
		}
	}
	return word[len(word)-1] >= utf8.RuneSelf
}

func pairOf(a, b byte) int { return int(a|' ')<<5&0xfff ^ int(b|' ') }

var secretPairs = func() (all [1 << 12]bool) {
	for _, part := range append([]string{".env", "*."}, secretPlaces...) {
		all[pairOf(part[0], part[1])] = true
	}
	return all
}()

// isWordByte reports whether a letter or digit of ASCII continues a name.
func isWordByte(c byte) bool {
	return byteKinds[c]&(smallByte|capitalByte) != 0 || '0' <= c && c <= '9'
}

// secretPlacesFrom has secretPlaces by their first byte.
var secretPlacesFrom = func() (all [256][]string) {
	for _, part := range secretPlaces {
		all[part[0]] = append(all[part[0]], part)
	}
	return all
}()
