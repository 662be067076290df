package detect

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nyaruka/phonenumbers"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

var update = flag.Bool("update", false, "write the tables of docs/redaction.md and phoneplans.txt anew")

// This test measures each detector on made-up texts, for the data that it finds and the look-alikes
// that it reports, and on texts that other people wrote. The documentation shows the table.
func TestNames16TheDocumentationSaysHowWellEachDetectorDoes(t *testing.T) {
	var b strings.Builder
	b.WriteString("| detector | made-up data | found | look-alikes | taken for data |\n| --- | --- | ---: | --- | ---: |\n")
	for _, kind := range switchboard.Detectors {
		c := corpora[kind]
		for i := range max(len(c.data), len(c.alike)) {
			cells := []string{"", "", "", "", ""}
			if i == 0 {
				cells[0] = "`" + string(kind) + "`"
			}
			if i < len(c.data) {
				cells[1], cells[2] = c.data[i].what, measure(kind, &c.data[i], true)
			}
			if i < len(c.alike) {
				cells[3], cells[4] = c.alike[i].what, measure(kind, &c.alike[i], false)
			}
			b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
		}
	}
	checkTable(t, "made-up texts", b.String())

	real, err := measureReal()
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the texts of other people are not here; only made-up ones were measured:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	checkTable(t, "texts of other people", real)
}

// checkTable compares a table of docs/redaction.md, or writes it.
func checkTable(t *testing.T, name, table string) {
	t.Helper()
	file := filepath.Join("..", "..", "..", "docs", "redaction.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	from, to := "<!-- "+name+" -->\n", "<!-- end -->\n"
	before, rest, _ := strings.Cut(string(text), from)
	shown, after, ok := strings.Cut(rest, to)
	switch {
	case !ok:
		t.Fatalf("%s has no table between %q and %q", file, from, to)
	case shown == table:
	case *update:
		if err := os.WriteFile(file, []byte(before+from+table+to+after), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s shows another table; run this test with -update. Measured:\n%s", file, table)
	}
}

// A corpus holds generators for data of one kind, and for look-alikes.
type corpus struct{ data, alike []sample }

// A sample makes n texts of a kind: data, or a text with the data in ⟦brackets⟧. name is the member
// that holds the text.
type sample struct {
	what string
	name string
	n    int
	each func(r *rand.Rand, i int) string
}

// sentences are texts around data, as servers write them.
var sentences = []string{
	"%s", "See %s.", "(%s)", "a line\n%s\nanother", "from %s to somebody", `{"value": "%s", "n": 17}`, "2026-11-23T10:15:30Z info %s ok", "a,%s,b", "<td>%s</td>", "**%s**: yes",
}

// measure counts the texts in which data was found: data exactly, look-alikes in any part.
func measure(kind switchboard.Detector, s *sample, exactly bool) string {
	r := rand.New(rand.NewPCG(16, uint64(len(s.what))))
	found, n := 0, 0
	for i := range s.n {
		datum := s.each(r, i)
		if datum == "" {
			continue
		}
		texts := sentences
		if s.name != "" {
			texts = sentences[:1]
		}
		text := fmt.Sprintf(texts[n%len(texts)], datum)
		n++
		from, to := strings.Index(text, datum), strings.Index(text, datum)+len(datum)
		if head, rest, ok := strings.Cut(text, "⟦"); ok { // the data is a part of the text
			datum, rest, _ = strings.Cut(rest, "⟧")
			text, from, to = head+datum+rest, len(head), len(head)+len(datum)
		}
		if slices.ContainsFunc(New([]switchboard.Detector{kind}).Find(text, s.name), func(f Finding) bool {
			if exactly {
				return f.From <= from && f.To >= to
			}
			return f.From < to && f.To > from
		}) {
			found++
		}
	}
	return fmt.Sprintf("%d of %d", found, n)
}

func list(all ...string) func(*rand.Rand, int) string {
	return func(_ *rand.Rand, i int) string { return all[i%len(all)] }
}

// row returns n random characters from an alphabet.
func row(r *rand.Rand, n int, of string) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = of[r.IntN(len(of))]
	}
	return string(b)
}

const (
	figures = "0123456789"
	upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	lower   = "abcdefghijklmnopqrstuvwxyz"
	hexes   = "0123456789abcdef"
	base62  = figures + upper + lower
)

var corpora = map[switchboard.Detector]corpus{
	switchboard.DetectEmail: {
		data: []sample{
			{what: "addresses", n: 1000, each: func(r *rand.Rand, _ int) string {
				local := row(r, 1+r.IntN(12), lower) + []string{"", ".x", "+news", "_1", "-b"}[r.IntN(5)]
				return local + "@" + row(r, 2+r.IntN(12), lower) + []string{".com", ".co.uk", ".example", ".mail.org", ".xn--p1ai"}[r.IntN(5)]
			}},
			{what: "addresses in other scripts", n: 4, each: list("jürgen@müller.example", "почта@пример.example", "δοκιμή@παράδειγμα.example", "用户@例子.广告")},
		},
		alike: []sample{
			{what: "packages, handles, remotes, pictures", n: 200, each: func(r *rand.Rand, i int) string {
				v := fmt.Sprintf("%d.%d.%d", r.IntN(20), r.IntN(20), r.IntN(20))
				return []string{row(r, 6, lower) + "@" + v, "@" + row(r, 5, lower) + "/" + row(r, 5, lower) + "@" + v, "@" + row(r, 8, lower), "git@github.com:a/b.git", "icon@2x.png", "a @ b.example", row(r, 4, lower) + "@localhost", "@odata.nextLink"}[i%8]
			}},
			{what: "files with an @ in their name", n: 100, each: func(r *rand.Rand, _ int) string {
				return row(r, 5, lower) + "@" + row(r, 6, lower) + "." + []string{"json", "yaml", "service", "txt"}[r.IntN(4)]
			}},
		},
	},
	switchboard.DetectPhone: {
		data: []sample{
			{what: "of each country, with its code (E.164)", n: len(regions), each: example(phonenumbers.E164)},
			{what: "the same, in groups", n: len(regions), each: example(phonenumbers.INTERNATIONAL)},
			{what: "as the country writes them, in a member `phone`", name: "phone", n: len(regions), each: example(phonenumbers.NATIONAL)},
			{what: "as the country writes them, behind `tel.`", n: len(regions), each: func(r *rand.Rand, i int) string {
				return "tel. ⟦" + example(phonenumbers.NATIONAL)(r, i) + "⟧"
			}},
			{what: "as the country writes them, and nothing says what they are", n: len(regions), each: example(phonenumbers.NATIONAL)},
		},
		alike: []sample{
			{what: "times and dates", n: 300, each: func(r *rand.Rand, i int) string {
				return fmt.Sprintf([]string{"20%02d-%02d-%02d 10:15:30", "17329%08d.%03d%d", "%02d.%02d.20%02d", "17%09d%d%d"}[i%4], 10+r.IntN(20), 1+r.IntN(12), 1+r.IntN(28))
			}},
			{what: "numbers of orders and parts", n: 300, each: func(r *rand.Rand, i int) string {
				return []string{"#" + row(r, 9, figures), "order " + row(r, 10, figures), row(r, 3, upper) + "-" + row(r, 7, figures), row(r, 2, figures) + "-" + row(r, 5, figures) + "-" + row(r, 2, figures), "id=" + row(r, 12, figures)}[i%5]
			}},
			{what: "UUIDs, digests, coordinates, versions", n: 300, each: func(r *rand.Rand, i int) string {
				return []string{uuid(r), row(r, 40, hexes), fmt.Sprintf("%d.%06d, %d.%06d", r.IntN(90), r.IntN(1e6), r.IntN(180), r.IntN(1e6)), fmt.Sprintf("%d.%d.%d", r.IntN(30), r.IntN(30), r.IntN(3000))}[i%4]
			}},
			{what: "tables of numbers, 200 each", n: 100, each: func(r *rand.Rand, i int) string {
				var cells []string
				for range 200 {
					cells = append(cells, fmt.Sprint(r.IntN([]int{2, 10, 100, 1000, 100_000}[i%5])))
				}
				return strings.Join(cells, []string{" ", ", ", "  "}[i%3])
			}},
			{what: "ISBNs and sums", n: 200, each: func(r *rand.Rand, i int) string {
				return []string{"ISBN 978-3-16-" + row(r, 6, figures) + "-0", fmt.Sprintf("%d,%03d,%03d", 1+r.IntN(99), r.IntN(1000), r.IntN(1000)), "3 + " + row(r, 8, figures), "+" + row(r, 3, figures) + " %"}[i%4]
			}},
		},
	},
	switchboard.DetectCard: {
		data: []sample{
			{what: "of eight brands, in one row", n: 1000, each: func(r *rand.Rand, i int) string { return cardOf(r, i) }},
			{what: "in groups", n: 1000, each: func(r *rand.Rand, i int) string { return grouped(cardOf(r, i), []string{" ", "-"}[i%2]) }},
		},
		alike: []sample{
			{what: "with one digit changed", n: 1000, each: func(r *rand.Rand, i int) string {
				b := []byte(cardOf(r, i))
				at := 4 + r.IntN(len(b)-4)
				b[at] = '0' + (b[at]-'0'+1)%10
				return string(b)
			}},
			{what: "any 16 digits", n: 1000, each: func(r *rand.Rand, _ int) string { return row(r, 16, figures) }},
			{what: "UUIDs, digests, times in ns", n: 1000, each: func(r *rand.Rand, i int) string {
				return []string{uuid(r), row(r, 64, hexes), "17" + row(r, 17, figures)}[i%3]
			}},
		},
	},
	switchboard.DetectIBAN: {
		data: []sample{
			{what: "of each country, in one row", n: len(ibanCountries), each: ibanOf},
			{what: "in groups", n: len(ibanCountries), each: func(r *rand.Rand, i int) string { return grouped(ibanOf(r, i), " ") }},
		},
		alike: []sample{
			{what: "with one digit changed", n: 500, each: func(r *rand.Rand, i int) string {
				b := []byte(ibanOf(r, i))
				at := len(b) - 1 - r.IntN(8)
				b[at] = '0' + (b[at]-'0'+1)%10
				return string(b)
			}},
			{what: "two letters and 20 digits", n: 1000, each: func(r *rand.Rand, _ int) string { return row(r, 2, upper) + row(r, 20, figures) }},
		},
	},
	switchboard.DetectIP: {
		data: []sample{
			{what: "IPv4", n: 1000, each: func(r *rand.Rand, _ int) string {
				return fmt.Sprintf("%d.%d.%d.%d", 1+r.IntN(255), r.IntN(256), r.IntN(256), r.IntN(256))
			}},
			{what: "IPv6", n: 1000, each: func(r *rand.Rand, i int) string {
				a := [16]byte{0x20, 0x01, 0x0d, 0xb8, 15: byte(1 + r.IntN(255))}
				if i%2 == 0 {
					for n := range a[4:] {
						a[4+n] = byte(r.IntN(256))
					}
				}
				return netip.AddrFrom16(a).String()
			}},
		},
		alike: []sample{
			{what: "versions that are called so", n: 200, each: func(r *rand.Rand, i int) string {
				return fmt.Sprintf([]string{"v%d.%d.%d.%d", "version %d.%d.%d.%d", "release %d.%d.%d.%d", "%d.%d.%d.%d-beta"}[i%4], r.IntN(20), r.IntN(20), r.IntN(20), r.IntN(20))
			}},
			{what: "versions that are not", n: 200, each: func(r *rand.Rand, _ int) string {
				return fmt.Sprintf("%d.%d.%d.%d", r.IntN(20), r.IntN(20), r.IntN(20), r.IntN(20))
			}},
			{what: "times, MACs, OIDs, names of C++", n: 200, each: func(r *rand.Rand, i int) string {
				return []string{fmt.Sprintf("%02d:%02d:%02d", r.IntN(24), r.IntN(60), r.IntN(60)), "00:1a:2b:3c:4d:" + row(r, 2, hexes), "1.3.6.1.4." + row(r, 2, "123456789"), "std::" + row(r, 5, lower)}[i%4]
			}},
		},
	},
	switchboard.DetectSecret: {
		data: []sample{
			{what: "keys of 14 services", n: 1400, each: func(r *rand.Rand, i int) string { return serviceKey(r, i) }},
			{what: "values of members such as `password`", name: "db_password", n: 500, each: func(r *rand.Rand, _ int) string { return row(r, 6+r.IntN(20), base62+"!#%+-_") }},
			{what: "the same, in JSON within a text", n: 500, each: func(r *rand.Rand, i int) string {
				return fmt.Sprintf([]string{`{"%s": "⟦%s⟧"}`, `{"id":1,"%s":"⟦%s⟧"}`, `"%s" : "⟦%s⟧"`}[i%3], []string{"password", "clientSecret", "API_KEY", "cookies"}[i%4], row(r, 6+r.IntN(20), base62))
			}},
			{what: "assigned: `api_key = \"…\"`", n: 500, each: func(r *rand.Rand, i int) string {
				name := []string{"api_key", "SECRET_TOKEN", "accessToken", "client_secret", "auth-key"}[i%5]
				return fmt.Sprintf([]string{`%s = "⟦%s⟧"`, "%s=⟦%s⟧", `%s: ⟦%s⟧`, `"%s": "⟦%s⟧"`}[i%4], name, row(r, 24+r.IntN(20), base62))
			}},
			{what: "passwords in URLs", n: 300, each: func(r *rand.Rand, i int) string {
				return []string{"postgres", "redis", "https", "amqp"}[i%4] + "://ann:⟦" + row(r, 6+r.IntN(12), base62) + "⟧@db.example:5432/x"
			}},
			{what: "private keys", n: 50, each: func(r *rand.Rand, i int) string {
				what := []string{"", "RSA ", "EC ", "OPENSSH "}[i%4] + "PRIVATE KEY-----\n"
				return "-----BEGIN " + what + row(r, 64, base62+"+/") + "\n" + row(r, 64, base62+"+/") + "\n-----END " + strings.TrimSpace(what)
			}},
		},
		alike: []sample{
			{what: "UUIDs, digests, commits", n: 300, each: func(r *rand.Rand, i int) string {
				return []string{uuid(r), "sha256:" + row(r, 64, hexes), "commit " + row(r, 40, hexes)}[i%3]
			}},
			{what: "base64 of anything", n: 300, each: func(r *rand.Rand, _ int) string { return row(r, 60+r.IntN(200), base62+"+/") }},
			{what: "examples: `YOUR_API_KEY`, `${TOKEN}`, `********`", n: 200, each: func(_ *rand.Rand, i int) string {
				return []string{`api_key = "YOUR_API_KEY"`, "token=${TOKEN}", "password: ********", `"secret": "<secret>"`, "API_KEY=xxxxxxxxxxxxxxxx", "auth_token: {{ token }}", "password: string", "access_token: the token that you were given"}[i%8]
			}},
			{what: "numbers and flags of members such as `max_tokens`", name: "max_tokens", n: 100, each: func(r *rand.Rand, _ int) string { return row(r, 1+r.IntN(6), figures) }},
			{what: "names and paths", n: 300, each: func(r *rand.Rand, i int) string {
				return []string{"getAuthenticationTokenProviderFactory", "src/auth/token_store_test.go", "key_of_the_primary_index", "https://example.com/oauth2/token?id=" + row(r, 4, figures)}[i%4]
			}},
		},
	},
}

func uuid(r *rand.Rand) string {
	return row(r, 8, hexes) + "-" + row(r, 4, hexes) + "-4" + row(r, 3, hexes) + "-a" + row(r, 3, hexes) + "-" + row(r, 12, hexes)
}

// regions are those with a known example of a phone number.
var regions = func() (all []string) {
	for region := range phonenumbers.GetSupportedRegions() {
		all = append(all, region)
	}
	slices.Sort(all)
	return all
}()

func example(f phonenumbers.PhoneNumberFormat) func(*rand.Rand, int) string {
	return func(_ *rand.Rand, i int) string {
		n := phonenumbers.GetExampleNumber(regions[i])
		if n == nil {
			return ""
		}
		return phonenumbers.Format(n, f)
	}
}

// cardOf returns a number of one of eight brands with valid check digit.
func cardOf(r *rand.Rand, i int) string {
	brand := []struct {
		prefix string
		length int
	}{{"4", 16}, {"51", 16}, {"2221", 16}, {"37", 15}, {"6011", 16}, {"3528", 16}, {"36", 14}, {"62", 16}}[i%8]
	b := []byte(brand.prefix + row(r, brand.length-len(brand.prefix), figures))
	for c := byte('0'); c <= '9'; c++ {
		if b[len(b)-1] = c; luhnValid(b) {
			break
		}
	}
	return string(b)
}

// grouped separates the characters as on an embossed card: 15 digits in 4, 6 and 5, 14 digits in 4,
// 6 and 4, others in fours.
func grouped(all, sep string) string {
	var parts []string
	for size := 4; len(all) > 0; {
		size = min(size, len(all))
		parts, all = append(parts, all[:size]), all[size:]
		if total := len(all) + 4; len(parts) == 1 && (total == 14 || total == 15) {
			size = 6
		} else if len(parts) == 2 && size == 6 {
			size = 5
		}
	}
	return strings.Join(parts, sep)
}

var ibanCountries = slices.Sorted(maps.Keys(ibanLengths))

// ibanOf returns a valid account number of a country.
func ibanOf(r *rand.Rand, i int) string {
	country := ibanCountries[i%len(ibanCountries)]
	rest := row(r, ibanLengths[country]-4, figures)
	for check := 2; check < 99; check++ {
		if n := fmt.Sprintf("%s%02d%s", country, check, rest); checkDigitsValid([]byte(n)) {
			return n
		}
	}
	return ""
}

// serviceKey returns a key in the format of one of 14 services.
func serviceKey(r *rand.Rand, i int) string {
	switch i % 14 {
	case 0:
		return "AKIA" + row(r, 16, upper+"234567")
	case 1:
		return "ghp_" + row(r, 36, base62)
	case 2:
		return "github_pat_" + row(r, 82, base62)
	case 3:
		return "glpat-" + row(r, 20, base62)
	case 4:
		return "xoxb-" + row(r, 12, figures) + "-" + row(r, 12, figures) + "-" + row(r, 24, base62)
	case 5:
		return "sk_live_" + row(r, 24, base62)
	case 6:
		return "AIza" + row(r, 35, base62+"-_")
	case 7:
		return "npm_" + row(r, 36, lower+figures)
	case 8:
		return "SG." + row(r, 22, base62) + "." + row(r, 43, base62)
	case 9:
		return "hf_" + row(r, 34, lower+upper)
	case 10:
		return "sk-ant-api03-" + row(r, 93, base62+"-_") + "AA"
	case 11:
		return "dop_v1_" + row(r, 64, hexes)
	case 12:
		return "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI" + row(r, 24, base62) + "." + row(r, 43, base62+"-_")
	default:
		return "sk-proj-" + row(r, 74, base62) + "T3BlbkFJ" + row(r, 74, base62)
	}
}

// realFiles are descriptions of tools, tasks and attacks.
var realFiles = []string{"catalog/servers.jsonl.gz", "poison/hard_negatives.jsonl", "poison/positives.jsonl", "search/azure_e2e.jsonl", "search/mcpproxy_golden.jsonl", "search/mcptoolbenchpp.jsonl"}

// judged are the hits in realFiles that a person has judged to be no data. All other hits were
// looked at too. If a change of the detectors finds others, the table shows it, and a person must
// judge them.
var judged = map[string]bool{
	"email xero-mcp-server@john-zhang-dev.json": true,
	"ip 100.0.0.0":                       true,
	"secret id=uk_countries":             true,
	"secret Bearer token":                true,
	"secret id=europe_cities_population": true,
	"secret id=vocab_synonyms":           true,
}

// measureReal counts what the detectors find in realFiles.
func measureReal() (table string, err error) {
	hits, wrong, size := map[switchboard.Detector]int{}, map[switchboard.Detector]int{}, 0
	for _, f := range realFiles {
		err := realdata.Lines(realdata.File(f), func(line []byte) error {
			var v any
			if err := json.Unmarshal(line, &v); err != nil {
				return err
			}
			s := New(switchboard.Detectors)
			eachText(v, "", func(text, name string) {
				size += len(text)
				for _, f := range s.Find(text, name) {
					hits[f.Kind]++
					if judged[string(f.Kind)+" "+text[f.From:f.To]] {
						wrong[f.Kind]++
					}
				}
			})
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| detector | found in %.1f MB | of these no data |\n| --- | ---: | ---: |\n", float64(size)/1e6)
	for _, kind := range switchboard.Detectors {
		fmt.Fprintf(&b, "| `%s` | %d | %d |\n", kind, hits[kind], wrong[kind])
	}
	return b.String(), nil
}

// eachText calls f for all texts of a value, with the names of their members, in any order.
func eachText(v any, name string, f func(text, name string)) {
	switch v := v.(type) {
	case string:
		f(v, name)
	case []any:
		for _, e := range v {
			eachText(e, name, f)
		}
	case map[string]any:
		for k, e := range v {
			f(k, "")
			eachText(e, k, f)
		}
	}
}
