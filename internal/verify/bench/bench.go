// Package bench starts a server's program a second time, in walls with nothing behind them, so that its tools can be exercised.
//
// It decides what such a program gets: no network, no secret, and one scratch folder in the place of each folder that its settings name. It starts nothing where a wall is
// missing. Package verify decides what is called.
package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
	"github.com/summit-switchboard/switchboard/internal/verify"
	"github.com/summit-switchboard/switchboard/internal/wall"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

const (
	startTime = 30 * time.Second // until the program has answered

	// ListTime is how long RelistOffer waits.
	ListTime = 5 * time.Second
)

// Options are what a bench needs from the running Switchboard.
type Options struct {
	// Guard, Own and Prepare: see upstream.Options.
	Guard   []string
	Own     func() []string
	Prepare func(ctx context.Context, s *switchboard.Server) (*switchboard.Server, error)

	Dir           string // the working directory of Switchboard
	Name, Version string
	Log           *slog.Logger
}

// A Bench is a running program with its scratch folder. Use Start. It is a switchboard.Caller for the calls of one goroutine.
type Bench struct {
	*upstream.Fleet
	folder   string // has the others
	work     string // the scratch folder
	walls    []string
	canaries []verify.Canary
	offer    switchboard.Offer
}

// An UnfitError says that a server cannot be exercised in walls.
type UnfitError struct{ Why string }

func (e *UnfitError) Error() string { return e.Why }

// Start starts the program of the server in walls with nothing behind them. The error is an *UnfitError if this server or this machine does not allow that, or its program
// does not answer there. The caller must call Close.
func Start(ctx context.Context, s *switchboard.Server, o Options) (_ *Bench, err error) {
	if s.Transport != switchboard.TransportStdio {
		return nil, &UnfitError{"it is no program that Switchboard starts, so it cannot get walls"}
	}
	b := &Bench{}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	if err := b.makeFolders(); err != nil {
		return nil, fmt.Errorf("the scratch folder cannot be made: %w", err)
	}
	row := b.rowOf(s, cmp.Or(s.Dir, o.Dir))
	b.Fleet = upstream.New(upstream.Options{
		Log: o.Log, Name: o.Name, Version: o.Version, Guard: o.Guard, Own: o.Own, Prepare: o.Prepare, OnePrincipal: true, StartDeadline: startTime, StartWait: startTime,
	})
	b.Set([]switchboard.Server{*row})
	b.Ready(ctx)
	status := b.Status()[0]
	offers := b.Offers()
	if len(offers) == 0 || status.State != upstream.StateReady {
		return nil, &UnfitError{"its program did not answer in the walls: " + b.whyNot(ctx, &status)}
	}
	if len(status.Walls) != 1 || !holds(&status.Walls[0]) {
		return nil, &UnfitError{"its program does not have all walls"}
	}
	b.offer, b.walls = offers[0], status.Walls[0].Walls
	return b, nil
}

// holds reports whether a program has the walls that give leave: those of strict, all of them.
func holds(w *wall.InEffect) bool {
	return w.Level == switchboard.SandboxStrict && len(w.Missing) == 0 && slices.Contains(w.Walls, wall.Files) && slices.Contains(w.Walls, wall.Network)
}

// whyNot says why the program did not answer.
func (b *Bench) whyNot(ctx context.Context, s *upstream.ServerStatus) string {
	f := s.LastFailure
	switch {
	case ctx.Err() != nil:
		return "the verification was stopped"
	case f == nil:
		return "no answer within " + startTime.String()
	case len(f.Stderr) > 0:
		return b.Mask(f.Message + ": " + f.Stderr[len(f.Stderr)-1])
	}
	return b.Mask(f.Message)
}

// makeFolders makes the scratch folder with something to read, and a folder beside it that no argument names.
func (b *Bench) makeFolders() error {
	folder, err := os.MkdirTemp("", "switchboard-verify-")
	if err != nil {
		return err
	}
	b.folder = folder
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return err
	}
	b.folder, b.work = folder, filepath.Join(folder, "work")
	canary := newCanary()
	b.canaries = append(b.canaries, verify.Canary{Text: canary, Place: "a file outside of its folder"})
	beside := filepath.Join(folder, "beside")
	if err := errors.Join(os.Mkdir(b.work, 0o700), os.Mkdir(beside, 0o700)); err != nil {
		return err
	}
	return errors.Join(b.Restore(), os.WriteFile(filepath.Join(beside, "canary.txt"), []byte(canary+"\n"), 0o600))
}

// samples are the files of the scratch folder.
var samples = map[string]string{"sample.txt": "A first line.\nA second line.\n", "sample.json": `{"name":"sample","count":2}` + "\n", "notes/first.md": "# First\n\nA note.\n"}

// Restore makes the content of the scratch folder as it was at first. The folder itself stays, since the walls are about it.
func (b *Bench) Restore() error {
	root, err := os.OpenRoot(b.work) // so that no link that the program has made leads out
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	for {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			if err := root.RemoveAll(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if err := root.Mkdir("notes", 0o700); err != nil {
		return err
	}
	for name, text := range samples {
		if err := root.WriteFile(filepath.FromSlash(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// newCanary returns a text that stands nowhere else.
func newCanary() string { return "canary-" + strings.ToLower(rand.Text()) }

// rowOf returns the row that starts the program here. dir is the working directory of the program in use.
func (b *Bench) rowOf(s *switchboard.Server, dir string) *switchboard.Server {
	row := *s
	row.Dir = b.work
	beside := filepath.Join(b.folder, "beside")
	row.Walls = switchboard.Confinement{Level: switchboard.SandboxStrict, Write: []string{b.work}, Read: []string{beside}, Exec: []string{string(filepath.Separator)}}
	if s.Walls.Level == switchboard.SandboxStrict { // it gets its own permissions, and no more
		row.Walls.Read, row.Walls.Exec = slices.Sorted(slices.Values(append(slices.Clone(s.Walls.Read), beside))), s.Walls.Exec
	}
	row.Command = slices.Clone(s.Command)
	for i := range row.Command {
		if i > 0 {
			row.Command[i] = b.inScratch(b.withoutSecret(row.Command[i]), dir)
		}
	}
	row.Env = map[string]switchboard.Secret{}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		value := s.Env[name].Reveal()
		switch {
		case switchboard.CredentialName(name) || switchboard.CredentialValue(value):
			value = b.newCanary("a variable of its environment")
		case filepath.IsAbs(value) && !strings.HasSuffix(strings.ToUpper(name), "PATH"):
			value = b.inScratch(value, dir)
		}
		row.Env[name] = switchboard.NewSecret(value)
	}
	row.Env["SESSION_NOTE"] = switchboard.NewSecret(b.newCanary("a variable of its environment")) // a name that does not tell what it is for
	row.Probe = switchboard.Probe{}
	return &row
}

// newCanary returns a text that no answer may have.
func (b *Bench) newCanary(place string) string {
	text := newCanary()
	b.canaries = append(b.canaries, verify.Canary{Text: text, Place: place})
	return text
}

// withoutSecret returns a word of a command with a made-up value in the place of a secret.
func (b *Bench) withoutSecret(word string) string {
	name, value, hasName := strings.Cut(word, "=")
	switch {
	case hasName && (switchboard.CredentialName(strings.Trim(name, "-")) || switchboard.CredentialValue(value)):
		return name + "=" + b.newCanary("an argument of its program")
	case switchboard.CredentialValue(word):
		return b.newCanary("an argument of its program")
	}
	return word
}

// inScratch returns a word of a command, or the value of a variable, with the scratch folder in the place of a folder that it names. A file that it names stays, by its whole path: the
// program runs in another folder.
func (b *Bench) inScratch(word, dir string) string {
	name, path, hasName := strings.Cut(word, "=")
	if !hasName || !strings.HasPrefix(word, "-") {
		name, path = "", word
	}
	if path == "" || len(path) > 4096 {
		return word
	}
	at := path
	if !filepath.IsAbs(at) {
		at = filepath.Join(dir, at)
	}
	info, err := os.Stat(at)
	switch {
	case err != nil:
		return word
	case info.IsDir():
		at = b.work
	}
	if name != "" {
		return name + "=" + at
	}
	return at
}

// Walls returns the walls of the program, as its guard has reported them.
func (b *Bench) Walls() []string { return b.walls }

// Canaries returns the texts that no answer may have.
func (b *Bench) Canaries() []verify.Canary { return b.canaries }

// Place returns what values for arguments are taken from.
func (b *Bench) Place(known map[string]any) verify.TestPlace {
	return verify.TestPlace{File: "sample.txt", Folder: ".", Outside: "../beside/canary.txt", Known: known}
}

// Mask replaces what differs from run to run in a text: the path of the scratch folder, and made-up secrets.
func (b *Bench) Mask(text string) string {
	for _, c := range b.canaries {
		text = strings.ReplaceAll(text, c.Text, "CANARY")
	}
	return strings.ReplaceAll(strings.ReplaceAll(text, b.work, "SCRATCH"), b.folder, "OUTSIDE")
}

// Definition returns the definition of a tool as the program offered it first, and its digest.
func (b *Bench) Definition(name string, volatile []string) (definition []byte, digest string, err error) {
	return definitionIn(&b.offer, name, volatile)
}

// Names returns the names of the tools that the program offered first, sorted.
func (b *Bench) Names() (names []string) {
	for _, t := range b.offer.Tools {
		raw, _ := wire.Field(t, "name")
		if name, ok := wire.String(raw); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// HasChanged lists the offer of the program again, because a program need not announce a change, and reports whether it offers another definition of the tool than at first. If the tools
// could not be listed, the last known offer counts, and listed is false.
func (b *Bench) HasChanged(ctx context.Context, name string, volatile []string) (changed, listed bool) {
	is, listed := RelistOffer(ctx, b.Fleet, b.offer.Server)
	return is == nil || Differs(&b.offer, is, name, volatile), listed
}

// RelistOffer lists the offer of a server again, and returns it as FindOffer does. listed reports whether the tools were listed in time.
func RelistOffer(ctx context.Context, f *upstream.Fleet, id switchboard.ServerID) (is *switchboard.Offer, listed bool) {
	ctx, cancel := context.WithTimeout(ctx, ListTime)
	defer cancel()
	listed = f.AwaitList(ctx, id)
	return FindOffer(f, id), listed
}

// FindOffer returns what a server offers; nil if it has never answered.
func FindOffer(f *upstream.Fleet, id switchboard.ServerID) *switchboard.Offer {
	for _, o := range f.Offers() {
		if o.Server == id {
			return &o
		}
	}
	return nil
}

// Differs reports whether two offers of a server have different definitions of the tool, or one of them has none.
func Differs(was, is *switchboard.Offer, name string, volatile []string) bool {
	_, before, err1 := definitionIn(was, name, volatile)
	_, after, err2 := definitionIn(is, name, volatile)
	return err1 != nil || err2 != nil || before != after
}

// definitionIn returns the definition of a tool in an offer, as its server sent it, and its digest.
func definitionIn(o *switchboard.Offer, name string, volatile []string) (definition []byte, digest string, err error) {
	for _, t := range o.Tools {
		raw, _ := wire.Field(t, "name")
		if n, _ := wire.String(raw); n == name {
			digest, err = admission.DigestOf(t, volatile...)
			return t, digest, err
		}
	}
	return nil, "", fmt.Errorf("the server has no tool %.80q", name)
}

// Bounds of the scratch folder that Inspect reads.
const (
	maxFiles    = 10_000
	maxBytes    = 64 << 20
	maxDepth    = 32
	inspectTime = 5 * time.Second
)

// Inspect returns a digest of the scratch folder: of the names, kinds, modes and contents of all that is in it. The error says that it could not be read whole, within its bounds.
func (b *Bench) Inspect() (string, error) {
	root, err := os.OpenRoot(b.work) // so that no link that the program has made leads out
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	i := inspection{sum: sha256.New(), until: time.Now().Add(inspectTime)}
	if err := i.folder(root, 0); err != nil {
		return "", err
	}
	return hex.EncodeToString(i.sum.Sum(nil)), nil
}

// An inspection reads a folder that a program may change meanwhile.
type inspection struct {
	sum   hash.Hash
	files int
	bytes int64
	until time.Time
}

// folder reads one folder.
func (i *inspection) folder(root *os.Root, depth int) error {
	if depth > maxDepth {
		return errors.New("it has too many levels")
	}
	names, err := i.names(root)
	if err != nil {
		return err
	}
	for _, name := range names {
		if time.Now().After(i.until) {
			return errors.New("it takes too long")
		}
		info, err := root.Lstat(name)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(i.sum, "%d %d:%s %s;", depth, len(name), name, info.Mode()) // it never fails
		switch {
		case info.IsDir():
			sub, err := root.OpenRoot(name)
			if err != nil {
				return err
			}
			err = i.folder(sub, depth+1)
			_ = sub.Close()
			if err != nil {
				return err
			}
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := root.Readlink(name)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(i.sum, "%d:%s;", len(target), target)
		case info.Mode().IsRegular():
			if err := i.file(root, name, info); err != nil {
				return err
			}
		}
	}
	return nil
}

// names returns the sorted names in a folder.
func (i *inspection) names(root *os.Root) (all []string, err error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	for {
		some, err := d.Readdirnames(256)
		all = append(all, some...)
		if i.files += len(some); i.files > maxFiles {
			return nil, errors.New("it has too many files")
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(all)
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// file reads a regular file. The program may have put something else in its place by now, such as a FIFO: that is an error.
func (i *inspection) file(root *os.Root, name string, info fs.FileInfo) error {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if is, err := f.Stat(); err != nil || !is.Mode().IsRegular() || !os.SameFile(is, info) {
		return errors.Join(err, errors.New("it changes while it is read"))
	}
	n, err := io.Copy(i.sum, io.LimitReader(f, maxBytes-i.bytes+1))
	if i.bytes += n; i.bytes > maxBytes {
		return errors.New("its files are too large")
	}
	return err
}

// Close ends the program, and removes the folder.
func (b *Bench) Close() {
	if b.Fleet != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		b.Fleet.Close(ctx)
	}
	if b.folder != "" {
		_ = os.RemoveAll(b.folder)
	}
}
