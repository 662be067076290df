package process

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// guardArg makes the test binary a guard.
const guardArg = "guard"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guardArg {
		Guard(os.Stdin, os.Stdout, os.Args[2:])
		return
	}
	os.Exit(m.Run())
}

// spawners returns a spawner without guards, and one with guards.
func spawners(t *testing.T) map[string]*Spawner {
	both := map[string]*Spawner{"alone": NewSpawner(nil), "guarded": NewSpawner([]string{os.Args[0], guardArg})}
	t.Cleanup(func() {
		for _, sp := range both {
			sp.Close()
		}
	})
	return both
}

func shell(script string) *switchboard.Server {
	return &switchboard.Server{Command: []string{"/bin/sh", "-c", script}}
}

func TestAProgramThatEndsSaysHow(t *testing.T) {
	for name, sp := range spawners(t) {
		for script, want := range map[string]string{"exit 3": "exit status 3", "kill -9 $$": "signal: killed"} {
			t.Run(name+" "+script, func(t *testing.T) {
				p, err := sp.Start(shell(script))
				if err != nil {
					t.Fatal(err)
				}
				<-p.Ended
				if got := p.ExitStatus(); got != want {
					t.Errorf("it ended with %q, want %q", got, want)
				}
				if !p.Stop(nil) {
					t.Error("it is not gone")
				}
			})
		}
	}
}

func TestStopIsGentleUnlessItIsInAHurry(t *testing.T) {
	hurry := make(chan struct{})
	close(hurry)
	for name, sp := range spawners(t) {
		for _, tt := range []struct {
			name, script string
			hurry        <-chan struct{}
			want         string
		}{
			{"it ends with its stdin", "read line; exit 4", nil, "exit status 4"},
			{"it ends on SIGTERM", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done", nil, "exit status 5"},
			{"it is killed in a hurry", "trap '' TERM; echo ready; while :; do sleep 0.01; done", hurry, "signal: killed"},
		} {
			t.Run(name+" "+tt.name, func(t *testing.T) {
				t.Parallel()
				p, err := sp.Start(shell(tt.script))
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(tt.script, "ready") {
					_, _ = bufio.NewReader(p.Stdout).ReadString('\n')
				}
				began := time.Now()
				if !p.Stop(tt.hurry) || p.ExitStatus() != tt.want {
					t.Errorf("it ended with %q, want %q", p.ExitStatus(), tt.want)
				}
				if took := time.Since(began); tt.hurry != nil && took > InputGrace {
					wait.Late(t, "in a hurry it took %s", took)
				}
			})
		}
	}
}

func TestAProgramThatCannotBeStartedIsAnError(t *testing.T) {
	for name, sp := range spawners(t) {
		for _, cfg := range []*switchboard.Server{{}, {Command: []string{"no-such-program"}}, {Command: []string{"/dev/null"}}} {
			if p, err := sp.Start(cfg); err == nil {
				t.Errorf("%s: %q was started", name, cfg.Command)
				p.Stop(nil)
			}
		}
	}
}
