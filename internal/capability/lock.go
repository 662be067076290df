package capability

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// LockFile is the name of the file in capabilities/ that lists the published versions. It is reviewed like code. Each line is
//
//	io.fs.read@1.2.0 sha256:…
//
// sorted by id and version. Empty lines, and lines that begin with #, are comments.
const LockFile = "published.lock"

// LockHead begins a new lock.
const LockHead = `# The published versions of capabilities, with the digests of their content. A published version never changes.
# "switchboard capability publish ID@VERSION" adds a line. Do not edit the lines: review them.
`

// A Locked is one line of the lock: a published version.
type Locked struct {
	ID     string
	Number *semver.Version
	Digest switchboard.Digest
	Line   int
}

// Name returns ID@NUMBER.
func (l Locked) Name() string { return l.ID + "@" + l.Number.String() }

func (l Locked) compare(o Locked) int {
	return cmp.Or(strings.Compare(l.ID, o.ID), l.Number.Compare(o.Number))
}

// ReadLock parses the lock, and reports all that is wrong with its lines. file names it in faults.
func ReadLock(file string, text []byte) (all []Locked, faults switchboard.Faults) {
	line := 0
	fault := func(format string, args ...any) {
		faults = append(faults, switchboard.Fault{File: file, Line: line, Column: 1, Text: fmt.Sprintf(format, args...)})
	}
	const remedy = `put the line back as "switchboard capability publish" wrote it`
	var last Locked
	for raw := range bytes.Lines(text) {
		line++
		s := strings.TrimRight(string(raw), "\r\n")
		if s == "" || s[0] == '#' {
			continue
		}
		name, digest, _ := strings.Cut(s, " ")
		id, number, _ := strings.Cut(name, "@")
		n, err := ParseNumber(number)
		if err != nil || !IsID(id) {
			fault("%.140q is no line of the lock; want ID@VERSION and a digest, such as io.fs.read@1.2.0 sha256:…: %s", s, remedy)
			continue
		}
		is := Locked{id, n, switchboard.Digest(digest), line}
		if !isDigest(digest) {
			fault("%s: %.80q is no digest; want sha256: and 64 hexadecimal digits: %s", is.Name(), digest, remedy)
			is.Digest = ""
		}
		if last.Number != nil {
			switch order := last.compare(is); {
			case slices.ContainsFunc(all, func(l Locked) bool { return l.compare(is) == 0 }):
				fault("%s stands here twice; remove the line that was added by hand", is.Name())
				continue
			case order > 0:
				fault("%s must stand before %s, at line %d; the lines are sorted, so that each change is one line: %s", is.Name(), last.Name(), last.Line, remedy)
			}
		}
		all, last = append(all, is), is
	}
	return all, faults
}

func isDigest(s string) bool {
	digits, ok := strings.CutPrefix(s, "sha256:")
	raw, err := hex.DecodeString(digits)
	return ok && err == nil && len(raw) == 32 && digits == strings.ToLower(digits)
}

// AddToLock returns the text of the lock with a line for the version. If the line is there, the text stays the same. If the
// version is published with another content, that is an error.
func AddToLock(file string, text []byte, v *ContractVersion) ([]byte, error) {
	if text == nil {
		text = []byte(LockHead)
	}
	locked, faults := ReadLock(file, text)
	if faults != nil {
		return nil, faults
	}
	is := Locked{ID: v.ID, Number: v.Number, Digest: v.Digest}
	at := len(text)
	for _, l := range locked {
		switch order := l.compare(is); {
		case order == 0 && l.Digest == v.Digest:
			return text, nil
		case order == 0:
			return nil, switchboard.Faults{v.fault("%s", changedText(v, l, file))}
		case order > 0:
			at = startOfLine(text, l.Line)
		}
		if at < len(text) {
			break
		}
	}
	added := fmt.Sprintf("%s %s\n", v.Name(), v.Digest)
	if at == len(text) && at > 0 && text[at-1] != '\n' {
		added = "\n" + added
	}
	return slices.Concat(text[:at], []byte(added), text[at:]), nil
}

// startOfLine returns where the line begins; the first line is 1.
func startOfLine(text []byte, line int) (at int) {
	for range line - 1 {
		at += bytes.IndexByte(text[at:], '\n') + 1
	}
	return at
}

func changedText(v *ContractVersion, l Locked, lockFile string) string {
	return fmt.Sprintf("%s is published, and its content has changed: its digest is %s, and %s:%d says %s. A published version never changes: put the file back as it was (or the line, if somebody has edited the lock), and write the change into a file of its own, as a new version", v.Name(), v.Digest, lockFile, l.Line, l.Digest)
}

// CheckLock compares the versions with the lock. A version without a digest has faults of its own. If whole is false, there may
// be more versions, whose files could not be read.
func CheckLock(versions []*ContractVersion, locked []Locked, file string, whole bool) (faults switchboard.Faults) {
	byName := map[string]*ContractVersion{}
	for _, v := range versions {
		byName[v.Name()] = v
	}
	published := map[string]bool{}
	for _, l := range locked {
		published[l.Name()] = true
		switch v := byName[l.Name()]; {
		case v == nil && !whole:
		case v == nil:
			faults = append(faults, switchboard.Fault{File: file, Line: l.Line, Column: 1, Text: fmt.Sprintf("%s is published, and no file in the folder describes it; put its file back. A version that nothing may use any more stays, with status: retired", l.Name())})
		case v.Digest != "" && l.Digest != "" && v.Digest != l.Digest:
			faults = append(faults, v.fault("%s", changedText(v, l, file)))
		}
	}
	for _, v := range versions {
		if v.Bindable() && !published[v.Name()] {
			faults = append(faults, v.fault("%s is %s, and is not published; publish it: switchboard capability publish %s", v.Name(), v.Status, v.Name()))
		}
	}
	return faults
}
