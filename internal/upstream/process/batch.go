package process

import (
	"errors"
	"path/filepath"
	"strings"
)

// isBatch reports whether Windows runs the program by cmd.exe. npm makes such a file for each program that it installs. Windows
// ignores points and spaces at the end of a name.
func isBatch(program string) bool {
	switch strings.ToLower(filepath.Ext(strings.TrimRight(program, " ."))) {
	case ".bat", ".cmd":
		return true
	}
	return false
}

// errBatchArgument refuses an argument that cmd.exe would take for the end of the command.
var errBatchArgument = errors.New("a .cmd or .bat file gets no argument with a line break or a zero byte; name the program that the file starts in \"command\" (for npx: node, and the path of npx-cli.js)")

// batchCommandLine returns the command line by which shell, which is cmd.exe, runs a batch file. os/exec quotes for programs only: cmd.exe reads the
// line by other rules, so that an argument could end the command and begin another one. /d and /v:off switch off what the
// registry may add and a second expansion; /s makes cmd.exe take off the outer quotes and nothing else.
func batchCommandLine(shell, script string, args []string) (string, error) {
	var b strings.Builder
	b.WriteString(`"` + shell + `" /d /e:on /v:off /s /c "`)
	for i, arg := range append([]string{script}, args...) {
		if strings.ContainsAny(arg, "\x00\r\n") {
			return "", errBatchArgument
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		writeBatchArgument(&b, arg, i == 0)
	}
	b.WriteByte('"')
	return b.String(), nil
}

// plainInBatch are the characters, besides letters and digits, that neither cmd.exe nor a program's own parser of its arguments treats specially.
const plainInBatch = `#$*+-./:?@\_`

// writeBatchArgument writes one argument so that it stays one: first for cmd.exe, for which nothing between quotes is special but
// a percent sign, then for the program that the file starts, which takes a doubled quote for a quote.
func writeBatchArgument(b *strings.Builder, arg string, always bool) {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(plainInBatch, r)
	}
	if !always && arg != "" && !strings.HasSuffix(arg, `\`) && strings.TrimFunc(arg, plain) == "" {
		b.WriteString(arg)
		return
	}
	b.WriteByte('"')
	backslashes := 0 // before the current character: a program's parser halves them before a quote
	for _, c := range []byte(arg) {
		switch c {
		case '\\':
			backslashes++
		case '"':
			b.WriteString(strings.Repeat(`\`, backslashes) + `"`)
			backslashes = 0
		case '%': // %cd:~,% is empty: without it, two percent signs could name a variable
			b.WriteString(`%%cd:~,`)
			backslashes = 0
		default:
			backslashes = 0
		}
		b.WriteByte(c)
	}
	b.WriteString(strings.Repeat(`\`, backslashes) + `"`)
}
