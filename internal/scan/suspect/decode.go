package suspect

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	minEncoded = 16      // characters; shorter ones decode to too little
	maxEncoded = 1 << 14 // of one word
)

// decode finds words that decode to orders: base64, hexadecimal digits, percent signs.
func (s *scanner) decode(at textPlace, text string) {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return r >= utf8.RuneSelf || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("+/=_-%", r)
	}) {
		if len(word) < minEncoded || len(word) > maxEncoded {
			continue
		}
		for _, plain := range decodings(word) {
			if isCommand(plain) {
				s.add(ruleEncoded, at, word+" is "+plain)
				return
			}
			before := len(s.found)
			if s.lookAtWords(at, plain, ruleEncoded); len(s.found) > before {
				return
			}
		}
	}
}

// decodings returns the readable texts that a word decodes to.
func decodings(word string) (all []string) {
	add := func(plain []byte) {
		if len(plain) >= minEncoded/2 && isReadable(plain) {
			all = append(all, string(plain))
		}
	}
	if strings.Contains(word, "%") {
		if plain, err := url.PathUnescape(word); err == nil {
			add([]byte(plain))
		}
		return all
	}
	if _, value, ok := strings.Cut(word, "="); ok && len(value) >= minEncoded { // name=value
		word = value
	}
	word = strings.TrimRight(word, "=")
	if plain, err := hex.DecodeString(word); err == nil {
		add(plain)
		return all
	}
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if plain, err := encoding.DecodeString(word); err == nil {
			add(plain)
			break
		}
	}
	return all
}

func isReadable(text []byte) bool {
	if !utf8.Valid(text) {
		return false
	}
	for _, r := range string(text) {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return false
		}
	}
	return true
}

// commands are words that begin a command of a shell or a script.
var commands = map[string]bool{
	"curl": true, "wget": true, "bash": true, "sh": true, "/bin/sh": true, "/bin/bash": true, "rm": true, "chmod": true, "nc": true, "ncat": true, "eval": true, "exec": true,
	"powershell": true, "iex": true, "python": true, "python3": true, "perl": true, "sudo": true, "scp": true, "ssh": true, "dd": true, "mkfifo": true, "crontab": true,
}

// isCommand reports whether a text is a command that runs, fetches or removes something, or has an address.
func isCommand(text string) bool {
	first, rest, more := strings.Cut(strings.TrimSpace(text), " ")
	return more && commands[first] && strings.ContainsAny(rest, "-/|>.") || strings.Contains(text, "://")
}
