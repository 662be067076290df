// Package powercut simulates power cuts from one run of a program.
//
// The program runs under strace, which records each system call that changes a file, syncs a file or writes to a socket. From this record a test
// simulates a power cut at any instant: a Disk has what was synced by then, and Cut keeps an arbitrary part of the rest. A new file, a renamed file and a
// removed file count as synced only with their folder, which is the least that POSIX promises.
//
// A test reads like this:
//
//	cmd := powercut.Trace(log, exec.Command(program))
//	events, err := powercut.Read(log, cmd.Dir) // after cmd has ended
//	disk, err := powercut.NewDisk(before)      // a copy of the folder before the run
//	err = disk.Replay(root, events[:n])        // until the power cut
//	err = disk.Cut(luck, 0.5, image)           // then start the program on image
package powercut

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// syncs are the calls that Trace delays, so that much is under way while the program waits for its disk.
const syncs = "fsync,fdatasync"

// traced are the calls that Read understands. A "?" stands before a call that not every architecture has.
const traced = syncs + ",sync,syncfs,sync_file_range,msync,write,pwrite64,writev,pwritev,pwritev2,sendto,sendmsg,ftruncate,?truncate,fallocate,copy_file_range," +
	"?open,?creat,openat,lseek,chdir,?mkdir,mkdirat,?rename,?renameat,renameat2,?link,linkat,?symlink,symlinkat,?unlink,unlinkat,?rmdir,?chmod,fchmod,fchmodat,io_uring_setup"

// refusal returns why strace cannot be used here, "" if it can.
var refusal = sync.OnceValue(func() string {
	if _, err := exec.LookPath("strace"); err != nil {
		return "strace is not installed"
	}
	out, err := exec.Command("strace", "-f", "--seccomp-bpf", "-o", os.DevNull, "-e", "trace=fsync", "true").CombinedOutput()
	if err != nil {
		first, _, _ := strings.Cut(string(out), "\n")
		return fmt.Sprintf("this machine does not let strace trace a program, as a container without SYS_PTRACE does not: %v: %s", err, first)
	}
	return ""
})

// Need ends a test if strace cannot be used: as a failure if SWITCHBOARD_REQUIRE=1, else skipped.
func Need(t testing.TB) {
	t.Helper()
	switch why := refusal(); {
	case why == "":
	case os.Getenv("SWITCHBOARD_REQUIRE") == "1":
		t.Fatalf("power cuts: required: %s", why)
	default:
		t.Skipf("skipped: power cuts (%s)", why)
	}
}

// Trace returns a command that runs cmd and records it in the file log. cmd is not used any more. Signals to the returned command do not reach the
// program, which is its child.
func Trace(log string, cmd *exec.Cmd) *exec.Cmd {
	args := []string{
		"-f", "--seccomp-bpf", "-q", "-o", log, "-y", "-xx", "-s", strconv.Itoa(1 << 26), "-e", "signal=none", "-e", "abbrev=none",
		"-e", "trace=" + traced, "-e", "inject=" + syncs + ":delay_exit=500", "--",
	}
	all := exec.Command("strace", slices.Concat(args, cmd.Args)...) //nolint:gosec // a test's
	all.Dir, all.Env, all.Stdin, all.Stdout, all.Stderr = cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr
	return all
}

// An Event is the begin or the return of a system call. strace stops the threads one by one, and this is the order of Events: if a thread waited
// for another one, its events come later.
type Event struct {
	*Call
	Returns bool
}

// A Call is a system call.
type Call struct {
	Name   string
	Args   []string // as strace prints them
	Result int      // -1 means that it failed, or never returned
	Opened string   // the path of the file that it opened
	dir    string   // relative paths start here
}

// Sent returns the bytes that the call writes to a socket, nil if it does not.
func (c *Call) Sent() []byte {
	if len(c.Args) < 2 {
		return nil
	}
	switch c.Name {
	case "write", "writev", "sendto", "sendmsg":
		if _, path, _ := c.file(0); strings.HasPrefix(path, "socket:") {
			return c.data(1)
		}
	}
	return nil
}

// IsSync reports whether the call makes earlier writes to a file durable.
func (c *Call) IsSync() bool { return c.Name == "fsync" || c.Name == "fdatasync" }

// Read reads a record of Trace. dir is the folder where the program was started.
func Read(log, dir string) ([]Event, error) {
	f, err := os.Open(log)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it is only read
	var events []Event
	begun, dirs := map[string]*Call{}, map[string]string{} // by the thread
	in := bufio.NewReaderSize(f, 1<<20)
	for n := 1; ; n++ {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return events, nil // what has no end was never written whole
		}
		if err != nil {
			return nil, err
		}
		thread, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "+++") || strings.HasPrefix(rest, "---") {
			continue
		}
		var c *Call
		if resumed, ok := strings.CutPrefix(rest, "<... "); ok {
			_, result, _ := strings.Cut(resumed, " resumed>")
			if c = begun[thread]; c == nil {
				return nil, fmt.Errorf("line %d returns from a call that did not begin", n)
			}
			delete(begun, thread)
			rest = result
		} else {
			c = &Call{Result: -1, dir: dir}
			if d := dirs[thread]; d != "" {
				c.dir = d
			}
			text, open := strings.CutSuffix(rest, "<unfinished ...>")
			c.Name, text, _ = strings.Cut(text, "(")
			if c.Args, rest, err = split(text, open); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			events = append(events, Event{c, false})
			if open {
				begun[thread] = c
				continue
			}
		}
		_, result, ok := strings.Cut(rest, "= ")
		if !ok {
			return nil, fmt.Errorf("line %d has no result: %.100s", n, rest)
		}
		number, _, _ := strings.Cut(result, " ")
		number, opened, _ := strings.Cut(number, "<")
		if number == "?" {
			continue // the process ended
		}
		if c.Result, err = strconv.Atoi(number); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if opened != "" {
			c.Opened = unhex(strings.TrimSuffix(opened, ">"))
		}
		if c.Name == "chdir" && c.Result == 0 {
			dirs[thread] = c.path(0)
		}
		events = append(events, Event{c, true})
	}
}

// split returns the arguments of a call and the text after them. open means that the call has not returned.
func split(text string, open bool) (args []string, rest string, err error) {
	depth, from, quoted := 0, 0, false
	for i := range len(text) {
		switch b := text[i]; {
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '[' || b == '{' || b == '(':
			depth++
		case depth > 0 && (b == ']' || b == '}' || b == ')'):
			depth--
		case b == ',' && depth == 0:
			args, from = append(args, strings.TrimSpace(text[from:i])), i+1
		case b == ')':
			return append(args, strings.TrimSpace(text[from:i])), text[i+1:], nil
		}
	}
	if !open {
		return nil, "", fmt.Errorf("a call without an end: %.100s", text)
	}
	return append(args, strings.TrimSpace(text[from:])), "", nil
}

// unhex decodes text that has \x before each byte. It returns other text as it is.
func unhex(text string) string {
	digits := make([]byte, 0, len(text)/2)
	for i := 0; i < len(text); i += 4 {
		if len(text) < i+4 || text[i:i+2] != `\x` {
			return text
		}
		digits = append(digits, text[i+2], text[i+3])
	}
	n, err := hex.Decode(digits, digits)
	if err != nil {
		return text
	}
	return string(digits[:n])
}

// file returns the descriptor and the path of argument i, which is a descriptor. gone means that the path was removed.
func (c *Call) file(i int) (fd, path string, gone bool) {
	fd, path, _ = strings.Cut(c.Args[i], "<")
	path, gone = strings.CutSuffix(path, "(deleted)")
	return fd, unhex(strings.TrimSuffix(path, ">")), gone
}

// data returns all the strings in argument i.
func (c *Call) data(i int) []byte {
	var all []byte
	parts := strings.Split(c.Args[i], `"`)
	for n := 1; n < len(parts); n += 2 {
		all = append(all, unhex(parts[n])...)
	}
	return all
}

// path returns argument i, which is a path, as an absolute path. A descriptor of a folder may stand before it.
func (c *Call) path(i int) string {
	p, dir := string(c.data(i)), c.dir
	if i > 0 && strings.Contains(c.Args[i-1], "<") {
		_, dir, _ = c.file(i - 1)
	}
	if !filepath.IsAbs(p) {
		p = filepath.Join(dir, p)
	}
	return filepath.Clean(p)
}

// number returns argument i.
func (c *Call) number(i int) (int, error) {
	n, err := strconv.ParseInt(c.Args[i], 0, 64)
	return int(n), err
}
