package secret

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const canary = "canary-4f1d7a"

// The test program is the command, in one of these ways.
func TestMain(m *testing.M) {
	switch os.Getenv("SECRET_TEST_WAY") {
	case "":
		os.Exit(m.Run())
	case "print":
		fmt.Println(canary)
	case "lines":
		fmt.Print("a\nb\r\n")
	case "nothing":
		fmt.Println()
	case "fail":
		fmt.Println(canary)
		fmt.Fprintln(os.Stderr, canary)
		os.Exit(3)
	case "zero":
		fmt.Print("a\x00b")
	case "exact":
		fmt.Println(strings.Repeat("x", 1000))
	case "more":
		fmt.Print(strings.Repeat("x", 1001))
	case "chatty":
		block := []byte(strings.Repeat(canary, 4096))
		for range 1 << 30 / len(block) {
			_, _ = os.Stderr.Write(block)
			if _, err := os.Stdout.Write(block); err != nil {
				return
			}
		}
	case "hang":
		fmt.Println(canary)
		_ = os.Stdout.Sync()
		time.Sleep(time.Hour) // until it is killed
	case "stdin":
		n, _ := os.Stdin.Read(make([]byte, 1))
		fmt.Println("read " + strconv.Itoa(n))
	case "env":
		_, ours := os.LookupEnv("OURS_TOKEN")
		fmt.Printf("%s %t", os.Getenv("THEIRS"), ours)
	case "child": // it leaves a process that has its stdout
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "SECRET_TEST_WAY=hang")
		c.Stdout = os.Stdout
		_ = c.Start()
	}
}

func command(way string) *Command {
	return &Command{
		Args: []string{os.Args[0], "argument"}, Timeout: 20 * time.Second,
		Env: map[string]switchboard.Secret{"SECRET_TEST_WAY": switchboard.NewSecret(way), "THEIRS": switchboard.NewSecret("theirs")},
	}
}

func TestACommandPrintsOneSecret(t *testing.T) {
	t.Setenv("OURS_TOKEN", canary)
	for _, tt := range []struct{ way, want, err string }{
		{"print", canary, ""},
		{"lines", "a\nb", ""},
		{"nothing", "", "printed nothing"},
		{"fail", "", "ended with exit status 3; run it yourself"},
		{"zero", "", "zero byte"},
		{"exact", strings.Repeat("x", 1000), ""},
		{"more", "", "printed more than 1000 bytes"},
		{"chatty", "", "printed more than 1000 bytes"},
		{"stdin", "read 0", ""},
		{"env", "theirs false", ""},
	} {
		t.Run(tt.way, func(t *testing.T) {
			got, err := Run(t.Context(), command(tt.way), 1000)
			if got.Reveal() != tt.want || (err == nil) != (tt.err == "") {
				t.Fatalf("%q %v", got.Reveal(), err)
			}
			if err != nil && (!strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), "the command ")) {
				t.Errorf("%v, want … %s …", err, tt.err)
			}
		})
	}
}

func TestACommandThatDoesNotEndIsEnded(t *testing.T) {
	c := command("hang")
	c.Timeout = 300 * time.Millisecond
	if got, err := Run(t.Context(), c, 1000); err == nil || !strings.Contains(err.Error(), "has not ended within 300ms") || got.Reveal() != "" {
		t.Errorf("%q %v", got.Reveal(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, command("hang"), 1000); err == nil || !strings.Contains(err.Error(), "was stopped") {
		t.Error(err)
	}
	begun := time.Now()
	if _, err := Run(t.Context(), command("child"), 1000); time.Since(begun) > 15*time.Second || err != nil && strings.Contains(err.Error(), canary) {
		t.Errorf("a command that leaves a process behind: %v after %v", err, time.Since(begun))
	}
}

func TestAProgramThatIsMissingIsNamed(t *testing.T) {
	c := &Command{Args: []string{"no-such-program-here"}, Timeout: time.Second}
	if _, err := Run(t.Context(), c, 1000); err == nil || !strings.Contains(err.Error(), `"no-such-program-here"`) || !strings.Contains(err.Error(), "was not found") {
		t.Error(err)
	}
}
