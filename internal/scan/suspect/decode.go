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

// isCodeByte says which bytes an encoded text has.
var isCodeByte = func() (is [256]bool) {
	for i := range is {
		c := byte(i)
		is[i] = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("+/=_-%", c) >= 0
	}
	return is
}()

// decode finds words that decode to orders: base64, hexadecimal digits, percent signs.
func (s *scanner) decode(at textPlace, text string) {
	for i := 0; i+minEncoded <= len(text); i++ {
		from := i
		for i += minEncoded - 1; i >= from && isCodeByte[text[i]]; i-- { // nearly no word is so long, so most bytes are not looked at
		}
		if i >= from {
			continue // behind the byte that ends the word
		}
		for i = from + minEncoded; i < len(text) && isCodeByte[text[i]]; {
			i++
		}
		if i-from > maxEncoded {
			continue
		}
		word := text[from:i]
		for _, plain := range decodings(word) {
			if isCommand(plain) {
				s.add(ruleEncoded, at, word+" is "+plain)
				return
			}
			before := s.hits
			if s.lookAtWords(at, plain, ruleEncoded); s.hits > before {
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
