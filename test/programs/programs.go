// Package programs builds the programs that tests start, each once for all the packages of
// a run: the runner of `make test` names a folder for them, which it removes at the end.
package programs

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
)

const (
	// DirEnv is the environment variable with the folder of the programs; the runner sets it.
	DirEnv = "SWITCHBOARD_TEST_PROGRAMS"
	// RaceEnv is the environment variable that asks for a Switchboard with the race
	// detector; the runner sets it. A test binary with the race detector asks for one too.
	RaceEnv = "SWITCHBOARD_TEST_RACE"
	// NoC is an environment variable of the go command: nothing is compiled with C.
	NoC = "CGO_ENABLED=0"
)

var (
	// raceFlags are the flags of `go build` and `go test` for the race detector.
	//go:embed race.flags
	raceFlags string
	// startupFlags leave out libraries that take half of the time of a start or of a policy when they
	// are watched. The tests of the packages that use them watch them.
	//go:embed startup.flags
	startupFlags string
)

// HasRace reports whether Switchboard has the race detector.
func HasRace() bool { return builtWithRace || os.Getenv(RaceEnv) != "" }

// RaceFlags returns the flags of `go build` with which Switchboard has the race detector.
func RaceFlags() []string { return strings.Fields(raceFlags + startupFlags) }

// Watched returns the path of the program with the race detector, or of Plain in a run without it. It is safe for concurrent
// use.
var Watched = sync.OnceValues(func() (string, error) {
	if !HasRace() {
		return Plain()
	}
	return Build("switchboard-race", module+"cmd/switchboard", RaceFlags()...)
})

// Plain returns the path of the program without the race detector: as people run it. It is safe for concurrent use.
var Plain = sync.OnceValues(func() (string, error) { return Build("switchboard", module+"cmd/switchboard") })

const module = "github.com/summit-switchboard/switchboard/"

// Build returns the path of the program called name, which is built from pkg with the
// flags unless it is there. It is safe for concurrent use, also by several processes.
func Build(name, pkg string, flags ...string) (string, error) {
	dir, err := folder()
	if err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() //nolint:errcheck // nothing is written to it
	if err := ownfile.Lock(lock); err != nil {
		return "", fmt.Errorf("%s: %w", lock.Name(), err)
	}
	file := filepath.Join(dir, name)
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	verb := "build"
	if slices.Contains(flags, "-c") {
		verb = "test"
	}
	fresh := file + ".new"
	cmd := exec.Command("go", slices.Concat([]string{verb, "-trimpath", "-ldflags=-w"}, flags, []string{"-o", fresh, pkg})...)
	cmd.Env = append(os.Environ(), NoC)
	if slices.Contains(flags, "-race") {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return file, os.Rename(fresh, file)
}

var own struct {
	sync.Mutex
	dir string
}

func folder() (string, error) {
	if dir := os.Getenv(DirEnv); dir != "" {
		return dir, nil
	}
	own.Lock()
	defer own.Unlock()
	var err error
	if own.dir == "" {
		own.dir, err = os.MkdirTemp("", "programs-")
	}
	return own.dir, err
}

// Run runs the tests, and removes what was built for them unless the runner does.
func Run(m interface{ Run() int }) int {
	// A program with the race detector would sleep for a second at its end.
	err := os.Setenv("GORACE", "atexit_sleep_ms=0")
	code := m.Run()
	own.Lock()
	defer own.Unlock()
	if own.dir != "" {
		err = errors.Join(err, os.RemoveAll(own.dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}
