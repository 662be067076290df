package mask

import (
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

func TestSecretsAreMaskedInEveryForm(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	m := New(&switchboard.Server{
		URL: "https://user:url-password@example.com/",
		Headers: map[string]switchboard.Secret{
			"Authorization":       switchboard.NewSecret("Basic dXNlcjpwYXNzd29yZC0x"), // user:password-1
			"X-Api-Key":           switchboard.NewSecret(`quo"te\back` + "\n"),
			"Proxy-Authorization": switchboard.NewSecret("Bearer tok/en+1"),
		},
		Env: map[string]switchboard.Secret{"DEBUG": switchboard.NewSecret("1"), "EMPTY": switchboard.NewSecret(""), "LONG": switchboard.NewSecret("tok/en+1-and-more")},
	})
	for in, want := range map[string]string{
		"Basic dXNlcjpwYXNzd29yZC0x": "***", "got dXNlcjpwYXNzd29yZC0x!": "got ***!", "user:password-1": "***", "password-1": "***",
		`{"k":"quo\"te\\back"}`: `{"k":"***"}`, "tok/en+1": "***", "?t=tok%2Fen%2B1&x": "?t=***&x", "tok/en+1-and-more": "***",
		"url-password": "***", "DEBUG=1": "DEBUG=1", "": "",
	} {
		if got := m.Text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got, want := m.Line([]byte("a\tb\x00\x1b[1m\xff\u202e é\n"), 100, true), "a\tb\\u0000\\u001b[1m\\ufffd\\u202e é"; got != want {
		t.Errorf("line %q, want %q", got, want)
	}
	if got := m.Line([]byte("0123456789"), 4, true); got != "0123…" {
		t.Errorf("line %q", got)
	}
	if got := m.Line([]byte(strings.Repeat("-", 100)+"tok/en+1-and-mor"), 1000, false); strings.Contains(got, "tok") {
		t.Errorf("a secret that was divided is shown: %q", got)
	}
}

func TestSecretsInAddressesAndArgumentsAreMasked(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	for _, tt := range []struct {
		name   string
		server switchboard.Server
		says   string
		want   string
	}{
		{"a password in a URL, as spelt and as meant", switchboard.Server{URL: "https://me:p%40ss%2Fword@a.example/"}, "p%40ss%2Fword p@ss/word", "*** ***"},
		{"a user that is a token", switchboard.Server{URL: "https://tok%2Den-1@a.example/"}, "tok%2Den-1 tok-en-1", "*** ***"},
		{"a value of a query, as spelt and as meant", switchboard.Server{URL: "https://a.example/mcp?x=1&k=se%2Fcr+et&last"}, "se%2Fcr+et se/cr et se/cr+et", "*** *** ***"},
		{"a short value", switchboard.Server{URL: "https://a.example/mcp?mode=quick"}, "quick", "quick"},
		{"a path", switchboard.Server{URL: "https://a.example/tenants#fragment?x=fragment"}, "tenants fragment", "tenants fragment"},
		{"--api-key=X", switchboard.Server{Command: []string{"p", "--api-key=hun=ter2"}}, "bad key hun=ter2", "bad key ***"},
		{"--token X", switchboard.Server{Command: []string{"p", "--token", "-hunter2", "plain-argument"}}, "-hunter2 plain-argument", "*** plain-argument"},
		{"--password X at the end", switchboard.Server{Command: []string{"p", "--db-password", "hunter2"}}, "hunter2", "***"},
		{"VAR=X", switchboard.Server{Command: []string{"docker", "run", "-e", "API_KEY=hunter2", "image"}}, "hunter2 API_KEY docker", "*** API_KEY docker"},
		{"a header", switchboard.Server{Command: []string{"p", "--header", "Authorization: Bearer hunter2"}}, "got Authorization: Bearer hunter2, hunter2", "got Authorization: ***, ***"},
		{"a header of another name", switchboard.Server{Command: []string{"p", "--header=X-Other: Bearer hunter-22"}}, "hunter-22", "***"},
		{"one of a well-known form", switchboard.Server{Command: []string{"p", "ghp_0123456789abcdef"}}, "ghp_0123456789abcdef", "***"},
		{"a URL among the arguments", switchboard.Server{Command: []string{"p", "postgres://me:hunter2@db/x", "https://a.example/?api_key=hunter3&region=europe"}}, "hunter2 hunter3 europe", "*** *** europe"},
		{"a URL among the variables", switchboard.Server{Env: map[string]switchboard.Secret{"DSN": switchboard.NewSecret("postgres://me:hunter2@db/x")}}, "hunter2", "***"},
		{"arguments that are none", switchboard.Server{Command: []string{"program", "--key-file", "/etc/key-of-it", "--region=europe", "--max-tokens", "100000"}}, "program /etc/key-of-it europe 100000", "program /etc/key-of-it europe 100000"},
	} {
		if got := New(&tt.server).Text(tt.says); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestInJSONOnlyStringsAreMasked(t *testing.T) {
	m := New(&switchboard.Server{Env: map[string]switchboard.Secret{
		"A_TOKEN": switchboard.NewSecret("content"), "B_PASSWORD": switchboard.NewSecret("123456"), "C_SECRET": switchboard.NewSecret(`{"a":"b"}`), "D_API_KEY": switchboard.NewSecret("a/b&c<d>"),
		"ROOT": switchboard.NewSecret("/srv/data"),
	}})
	for in, want := range map[string]string{
		`{ "content" : [ {"text":"no content"} ], "n": 1234567 }`: `{ "content" : [ {"text":"no ***"} ], "n": 1234567 }`,
		`{"a":"b"}`:                  `{"a":"b"}`,
		`["{\"a\":\"b\"}","123456"]`: `["***","***"]`,
		`{"x":"a\/b\u0026c\u003cd>\n","y":"\u00e9 1.0"}`: `{"x":"***\n","y":"\u00e9 1.0"}`,
		`{"x":"\ud800 content"}`:                         `{"x":"\ud800 ***"}`,
		`{"x":"\"","y":"content\\"}`:                     `{"x":"\"","y":"***\\"}`,
		`{"x":"no such folder: /srv/data/a"}`:            `{"x":"no such folder: /srv/data/a"}`,
		``:                                               ``,
	} {
		if got := string(m.JSON([]byte(in))); got != want {
			t.Errorf("%s:\n%s, want\n%s", in, got, want)
		}
	}
	untouched := []byte(`{"content":[{"text":"nothing of ours"}]}`)
	if got := m.JSON(untouched); &got[0] != &untouched[0] {
		t.Error("text without a secret is copied")
	}
}

// A program that breaks its lines at the width of a terminal, as Python's rich does, divides a long credential.
func TestACredentialThatALineBreakDividesIsMasked(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	const secret = "sk-ant-0123456789-abcdefghij-klmnopqrst" //nolint:gosec // it is made up
	m := New(&switchboard.Server{Env: map[string]switchboard.Secret{"API_KEY": switchboard.NewSecret(secret), "ROOT": switchboard.NewSecret("/srv/data/projects/of-ann")}})
	for i := range len(secret) + 1 {
		for _, frame := range [...][2]string{{"", ""}, {"│   ", "   │"}, {"| ", " |"}} {
			first := m.Line([]byte(frame[0]+"key: "+secret[:i]+frame[1]), 1000, true)
			second := m.Line([]byte(frame[0]+secret[i:]+" is refused"+frame[1]), 1000, true)
			for _, got := range []string{first, second} {
				for at := range len(secret) - minPart {
					if part := secret[at : at+minPart]; strings.Contains(got, part) {
						t.Fatalf("divided at %d: %q has %q", i, got, part)
					}
				}
			}
		}
	}
	for in, want := range map[string]string{
		"│ " + secret[5:30] + " │":                  "│ *** │", // it is divided twice
		secret[20:] + " and " + secret + secret[:9]: "*** and ******",
		"in /srv/data/projects":                     "in /srv/data/projects", // no credential
		"the key begins with sk-ant-":               "the key begins with sk-ant-",
		"":                                          "",
		"│":                                         "│",
		"   ":                                       "",
	} {
		if got := m.Line([]byte(in), 1000, true); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}
