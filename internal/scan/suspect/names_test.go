package suspect_test

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/scan/suspect"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

func TestNamesThatLookAlikeAreFound(t *testing.T) {
	for _, tt := range []struct {
		a, b  string
		alike bool
	}{
		{"@modelcontextprotocol/server-filesystem", "@modelcontextprotocol/server-filesytem", true},
		{"@modelcontextprotocol/server-filesystem", "@modelcontextprotocol/server-filesystme", true},
		{"@modelcontextprotocol/server-filesystem", "@modelcontextprotocoll/server-filesystem", true},
		{"@modelcontextprotocol/server-filesystem", "@modelcontextprotoc0l/server-filesystem", true},
		{"mcp-server-git", "mcp-server-g\u0456t", true},
		{"corner-mcp", "comer-mcp", true},
		{"github", "githup", true},
		{"postgres", "postgress", false}, // an s at the end
		{"server-a", "server-b", false},
		{"server-1", "server-2", false},
		{"replica1", "replica2", false},
		{"weather", "weather2", false},
		{"mysql", "mssql", false},
		{"mcp-server-git", "mcp_server_git", false}, // one package
		{"notes", "notes", false},
		{"github", "gitlab", false},
		{"server-file", "server-files", false},
		{"@acme/server-files", "@other/server-files", false},
	} {
		if got := lookAlike(tt.a, tt.b); got != tt.alike || lookAlike(tt.b, tt.a) != got {
			t.Errorf("%s and %s: %v", tt.a, tt.b, got)
		}
	}
}

// No two of the names of real servers look alike. A slip in a real name does.
func TestRealNamesDoNotLookAlikeAndSlipsDo(t *testing.T) {
	servers, err := realdata.Servers()
	if os.IsNotExist(err) {
		t.Skipf("the data of other people is not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	var full, last []string // with their publishers, and without
	for _, s := range servers {
		full, last = append(full, s.Name), append(last, lastPart(s.Name))
	}
	for _, names := range [][]string{full, last} {
		alike := 0
		for i, j := range suspect.AlikeNames(names) {
			alike++
			t.Logf("%s looks like %s", names[j], names[i])
		}
		t.Logf("%d of %d names look like another one", alike, len(names))
		if alike > 5 {
			t.Errorf("%d names look alike", alike)
		}
	}
	random := rand.New(rand.NewPCG(5, 6))
	found, slips := 0, 0
	for _, s := range servers {
		if slip := withSlip(random, s.Name); slip != "" {
			slips++
			if lookAlike(s.Name, slip) {
				found++
			}
		}
	}
	t.Logf("%d of %d slips are found", found, slips)
	if slips < 300 || found*100 < slips*95 {
		t.Errorf("%d of %d slips are found", found, slips)
	}
}

func lookAlike(a, b string) bool {
	for range suspect.AlikeNames([]string{a, b}) {
		return true
	}
	return false
}

func lastPart(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// withSlip returns a name with a slip in its longest word, or "" if that is short.
func withSlip(random *rand.Rand, name string) string {
	longest := ""
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("@/-_.", r) }) {
		if len(word) > len(longest) {
			longest = word
		}
	}
	if len(longest) < 7 {
		return ""
	}
	i := 1 + random.IntN(len(longest)-2)
	w := []byte(longest)
	switch random.IntN(4) {
	case 0:
		w = append(w[:i], w[i+1:]...)
	case 1:
		w[i], w[i+1] = w[i+1], w[i]
	case 2:
		w[i] = 'a' + (w[i]-'a'+1)%26
	case 3:
		w = append(w[:i], append([]byte{w[i]}, w[i:]...)...)
	}
	if slip := string(w); slip != longest && !strings.ContainsAny(longest, "0123456789") {
		return strings.Replace(name, longest, slip, 1)
	}
	return ""
}

func FuzzAlikeNames(f *testing.F) {
	f.Add("server-filesystem", "server-filesytem")
	f.Add("a", "")
	f.Fuzz(func(t *testing.T, a, b string) {
		if lookAlike(a, b) != lookAlike(b, a) || lookAlike(a, a) {
			t.Errorf("%q and %q: %v", a, b, lookAlike(a, b))
		}
	})
}
