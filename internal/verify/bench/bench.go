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
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
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

// startTime limits how long a program may take until it has answered.
const startTime = 30 * time.Second

// Options are what a bench needs from the running Switchboard.
type Options struct {
	// Guard, Own and Prepare are those of upstream.Options.
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
	for name, text := range map[string]string{
		"work/sample.txt": "A first line.\nA second line.\n", "work/sample.json": `{"name":"sample","count":2}` + "\n", "work/notes/first.md": "# First\n\nA note.\n", "beside/canary.txt": canary + "\n",
	} {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// newCanary returns a text that stands nowhere else.
func newCanary() string { return "canary-" + strings.ToLower(rand.Text()) }

// secretName finds variables whose values are secrets.
var secretName = regexp.MustCompile(`(?i)(key|token|secret|passw|credential|auth|cookie|session|dsn|private)`)

// rowOf returns the row with which the program is started. dir is where the row is started otherwise.
func (b *Bench) rowOf(s *switchboard.Server, dir string) *switchboard.Server {
	row := *s
	row.Dir = b.work
	beside := filepath.Join(b.folder, "beside")
	row.Walls = switchboard.Confinement{Level: switchboard.SandboxStrict, Write: []string{b.work}, Read: []string{beside}, Exec: []string{string(filepath.Separator)}}
	if s.Walls.Level == switchboard.SandboxStrict { // it must do with what it names
		row.Walls.Read, row.Walls.Exec = slices.Sorted(slices.Values(append(slices.Clone(s.Walls.Read), beside))), s.Walls.Exec
	}
	row.Command = slices.Clone(s.Command)
	for i := range row.Command {
		if i > 0 {
			row.Command[i] = b.inScratch(row.Command[i], dir)
		}
	}
	row.Env = map[string]switchboard.Secret{}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		value := s.Env[name].Reveal()
		if secretName.MatchString(name) {
			value = newCanary()
			b.canaries = append(b.canaries, verify.Canary{Text: value, Place: "a variable of its environment"})
		}
		row.Env[name] = switchboard.NewSecret(b.inScratch(value, dir))
	}
	canary := newCanary()
	b.canaries = append(b.canaries, verify.Canary{Text: canary, Place: "a variable of its environment"})
	row.Env["CANARY"] = switchboard.NewSecret(canary)
	row.Probe = switchboard.Probe{}
	return &row
}

// inScratch returns a word of a command, or the value of a variable, with the scratch folder in the place of a folder that it names.
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
	if info, err := os.Stat(at); err != nil || !info.IsDir() {
		return word
	}
	if name != "" {
		return name + "=" + b.work
	}
	return b.work
}

// Walls returns the walls of the program, as its guard has reported them.
func (b *Bench) Walls() []string { return b.walls }

// Canaries returns the texts that no answer may have.
func (b *Bench) Canaries() []verify.Canary { return b.canaries }

// Place returns what values for arguments are taken from.
func (b *Bench) Place(known map[string]any) verify.Place {
	return verify.Place{File: "sample.txt", Folder: ".", Outside: "../beside/canary.txt", Known: known}
}

// Mask replaces the path of the scratch folder in a text.
func (b *Bench) Mask(text string) string {
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

// Changed reports whether the program offers another definition of the tool than at first.
func (b *Bench) Changed(name string, volatile []string) bool {
	_, was, err1 := b.Definition(name, volatile)
	for _, o := range b.Offers() {
		_, is, err2 := definitionIn(&o, name, volatile)
		return err1 != nil || err2 != nil || was != is
	}
	return true
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
	maxFiles = 10_000
	maxBytes = 64 << 20
)

// Inspect returns a digest of the scratch folder: of the names, kinds, modes and contents of all that is in it.
func (b *Bench) Inspect() (string, error) {
	root, err := os.OpenRoot(b.work) // so that no link that the program has made leads out
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	sum, files, bytes := sha256.New(), 0, int64(0)
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if files++; files > maxFiles {
			return errors.New("it has too many files")
		}
		_, _ = fmt.Fprintf(sum, "%d:%s %s;", len(path), path, info.Mode()) // it never fails
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := root.Readlink(path)
			_, _ = fmt.Fprintf(sum, "%d:%s;", len(target), target)
			return err
		case !info.Mode().IsRegular():
			return nil
		}
		if bytes += info.Size(); bytes > maxBytes {
			return errors.New("its files are too large")
		}
		f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a FIFO by now
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		_, err = io.Copy(sum, io.LimitReader(f, maxBytes))
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)), err
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
