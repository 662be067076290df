package search

import (
	"strings"
	"testing"
)

func wordsOf(text string) string {
	var all []string
	eachWord(text, func(w []byte) { all = append(all, string(w)) })
	return strings.Join(all, " ")
}

func TestNamesAreSplitIntoWords(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "",
		"read_text_file":              "read text file",
		"list-issues.for/repo":        "list issues for repo",
		"getUserById":                 "get user by id",
		"HTTPServer":                  "httpserver http server",
		"parseHTTPResponse":           "parse http response",
		"GitHub":                      "github git hub",
		"s3_list_buckets":             "s3 list buckets",
		"sha256sum":                   "sha 256 sum",
		"utf8":                        "utf8 utf",
		"page12":                      "page12 page 12",
		"ALL_CAPS":                    "all caps",
		"the user's":                  "the user s",
		"Größe ÄNDERN":                "größe ändern",
		"搜索 web":                      "搜 索 web",
		"a\x00b\xffc":                 "a b c",
		"İd":                          "id",
		strings.Repeat("x", 100):      strings.Repeat("x", maxWord),
		strings.Repeat("aB", 100)[:8]: "a ba ba ba b",
	} {
		if got := wordsOf(text); got != want {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}

// The examples of Porter's paper, step by step, with the results of the whole algorithm.
func TestStemsAreThoseOfPortersProgram(t *testing.T) {
	for word, want := range map[string]string{
		"caresses": "caress", "ponies": "poni", "ties": "ti", "cats": "cat",
		"feed": "feed", "plastered": "plaster", "bled": "bled", "motoring": "motor", "sing": "sing",
		"conflated": "conflat", "troubled": "troubl", "sized": "size", "hopping": "hop", "falling": "fall", "hissing": "hiss",
		"fizzed": "fizz", "failing": "fail", "filing": "file", "happy": "happi", "sky": "sky",
		"relational": "relat", "conditional": "condit", "rational": "ration", "valenci": "valenc", "digitizer": "digit",
		"radicalli": "radic", "vietnamization": "vietnam", "predication": "predic", "operator": "oper", "feudalism": "feudal",
		"decisiveness": "decis", "hopefulness": "hope", "formaliti": "formal", "sensitiviti": "sensit", "sensibiliti": "sensibl",
		"triplicate": "triplic", "formative": "form", "formalize": "formal", "electrical": "electr", "hopeful": "hope",
		"goodness": "good", "revival": "reviv", "allowance": "allow", "inference": "infer", "airliner": "airlin",
		"adjustable": "adjust", "defensible": "defens", "irritant": "irrit", "replacement": "replac", "adjustment": "adjust",
		"dependent": "depend", "adoption": "adopt", "homologou": "homolog", "communism": "commun", "activate": "activ",
		"angulariti": "angular", "effective": "effect", "bowdlerize": "bowdler",
		"probate": "probat", "rate": "rate", "cease": "ceas", "roll": "roll",
		"generalizations": "gener", "oscillators": "oscil",
		"news": "news", "is": "is", "s3": "s3", "größen": "größen", "": "",
	} {
		if got := stemOf(word); got != want {
			t.Errorf("%q becomes %q, want %q", word, got, want)
		}
	}
}

func TestSynonymsAreSymmetric(t *testing.T) {
	for w, others := range synonyms {
		for _, o := range others {
			if !wordSet(strings.Join(synonyms[o], " "))[w] {
				t.Errorf("%q has the synonym %q, but not the reverse", w, o)
			}
		}
	}
	for line := range strings.Lines(synonymGroups) {
		for w := range strings.FieldsSeq(line) {
			if stopWords[w] {
				t.Errorf("%q is a stop word, so it is never searched", w)
			}
		}
	}
}
