package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/test/configtest"
)

// TestMain is also the command of the tests of secrets: it prints, counts its runs, and fails or hangs if it is asked to.
func TestMain(m *testing.M) {
	file := os.Getenv("CONFIG_TEST_PRINTS")
	if file == "" {
		os.Exit(m.Run())
	}
	counter, _ := os.OpenFile(file+".runs", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	_, _ = counter.WriteString("x")
	_ = counter.Close()
	text, err := os.ReadFile(file)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, configtest.Canary)
		fmt.Println(configtest.Canary)
		os.Exit(3)
	case string(text) == "hang":
		time.Sleep(time.Hour) // until it is killed
	}
	_, _ = os.Stdout.Write(text)
}

// A printing is a folder with a configuration whose secret a command prints.
type printing struct {
	t         *testing.T
	dir, file string // file has what the command prints; without it, the command fails
}

func newPrinting(t *testing.T, text string) *printing {
	t.Helper()
	p := &printing{t, t.TempDir(), ""}
	p.file = filepath.Join(p.dir, "printed")
	p.write(text)
	return p
}

func (p *printing) write(text string) {
	p.t.Helper()
	text = strings.NewReplacer("PROGRAM", os.Args[0], "FILE", p.file).Replace(text)
	if err := os.WriteFile(filepath.Join(p.dir, "switchboard.yaml"), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *printing) print(text string) {
	p.t.Helper()
	if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *printing) load(o config.Options) (*config.Config, error) {
	return config.Load(p.t.Context(), filepath.Join(p.dir, "switchboard.yaml"), o)
}

// runs returns how often the command has run.
func (p *printing) runs() int {
	text, _ := os.ReadFile(p.file + ".runs")
	return len(text)
}

const printed = `secrets:
  tracker: {command: ["PROGRAM", -x], env: {CONFIG_TEST_PRINTS: "FILE"}, timeout: 5s, every: 10s}
servers:
  a: {transport: http, url: "https://a.example/mcp", headers: {Authorization: "Bearer ${secret:tracker}", X-Again: "${secret:tracker}"}}
  b: {transport: stdio, command: [b], env: {TOKEN: "${secret:tracker}"}}
`

func TestASecretIsWhatItsCommandPrints(t *testing.T) {
	p := newPrinting(t, printed)
	p.print(configtest.Canary + "\n")
	c, err := p.load(config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Servers[0].Headers["Authorization"].Reveal() + c.Servers[0].Headers["X-Again"].Reveal() + c.Servers[1].Env["TOKEN"].Reveal(); got != "Bearer "+strings.Repeat(configtest.Canary, 3) {
		t.Errorf("it is used as %q", got)
	}
	if s := c.Secrets["tracker"]; s.Value.Reveal() != configtest.Canary || s.Every != 10*time.Second || s.Command.Timeout != 5*time.Second {
		t.Errorf("it is kept as %+v", s)
	}
	if n := p.runs(); n != 1 {
		t.Errorf("the command ran %d times for three references", n)
	}
	if text := fmt.Sprintf("%+v", c); strings.Contains(text, configtest.Canary) {
		t.Error("the configuration shows the secret")
	}
}

func TestAFaultOfACommandStandsAtEachReferenceAndRepeatsNoOutput(t *testing.T) {
	for _, tt := range []struct{ printed, want string }{
		{"", "ended with exit status 3; run it yourself"},
		{"hang", "has not ended within 200ms"},
		{"\n", "printed nothing"},
		{strings.Repeat(configtest.Canary, 10_000), "printed more than 65536 bytes"},
	} {
		p := newPrinting(t, strings.Replace(printed, "5s", "200ms", 1))
		if tt.want != "has not ended within 200ms" {
			p.write(printed)
		}
		if tt.printed != "" {
			p.print(tt.printed)
		}
		_, err := p.load(config.Options{})
		if err == nil || strings.Count(err.Error(), tt.want) != 3 || strings.Contains(err.Error(), configtest.Canary) || !strings.Contains(err.Error(), `switchboard.yaml:4:79: server "a": headers: Authorization: secret tracker: the command "`+os.Args[0]+`" `) {
			t.Errorf("%v, want three times … %s …", err, tt.want)
		}
	}
}

func TestASecretThatCannotBeReadAgainKeepsItsLastValue(t *testing.T) {
	p := newPrinting(t, printed)
	p.print("one")
	first, err := p.load(config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(p.file); err != nil {
		t.Fatal(err)
	}
	c, err := p.load(config.Options{Previous: first})
	if err != nil || c.Secrets["tracker"].Value.Reveal() != "one" || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].String(), "switchboard.yaml:2:3: secret \"tracker\": the command ") {
		t.Errorf("%v, warnings %v", err, c.Warnings)
	}
	p.write(strings.Replace(printed, "-x", "-y", 1))
	if _, err := p.load(config.Options{Previous: first}); err == nil {
		t.Error("another command has the secret of the earlier one")
	}
}

// A trial is of somebody who may perhaps not run code.
func TestATrialRunsNoCommand(t *testing.T) {
	p := newPrinting(t, printed)
	p.print("one")
	first, err := p.load(config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, new, want string }{
		{"10s", "20s", "one"},
		{"-x", "-y", ""},
		{"CONFIG_TEST_PRINTS: ", "OTHER: x, CONFIG_TEST_PRINTS: ", ""},
	} {
		text := strings.NewReplacer("PROGRAM", os.Args[0], "FILE", p.file).Replace(strings.Replace(printed, tt.old, tt.new, 1))
		c, err := p.load(config.Options{Previous: first, Replace: map[string][]byte{"switchboard.yaml": []byte(text)}})
		if err != nil || c.Secrets["tracker"].Value.Reveal() != tt.want || !strings.HasSuffix(c.Servers[1].Env["TOKEN"].Reveal(), tt.want) {
			t.Errorf("%s: %v %v", tt.new, err, c)
		}
	}
	if n := p.runs(); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
}

func TestASecretThatNothingRefersToIsNotRead(t *testing.T) {
	p := newPrinting(t, strings.ReplaceAll(printed, "${secret:tracker}", "$${secret:none}"))
	c, err := p.load(config.Options{})
	if err == nil && (p.runs() != 0 || len(c.Warnings) == 0 || !strings.Contains(c.Warnings[0].String(), "nothing refers to the secret tracker")) {
		t.Errorf("%d runs, %v", p.runs(), c.Warnings)
	}
}
