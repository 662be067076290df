package detect_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/redact/detect"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestAfterManyChecksOfPhoneNumbersEachCandidateIsFound(t *testing.T) {
	const checks, no = 20_000, "+210 1234567, " // there is no country code 210
	for _, more := range []int{0, 1, 5} {
		if found := detect.New([]switchboard.Detector{switchboard.DetectPhone}).Find(strings.Repeat(no, checks+more), ""); len(found) != more {
			t.Errorf("of %d candidates, %d were found, want %d", checks+more, len(found), more)
		}
	}
}

// Each text holds the data in ⟦brackets⟧, and no other. A name before " = " is the member that
// holds the text.
func TestDataIsFoundWithItsExactBounds(t *testing.T) {
	for kind, texts := range map[switchboard.Detector][]string{
		switchboard.DetectEmail: {
			"⟦ann@example.com⟧", "Write to ⟦ann.b+news@mail.example.co.uk⟧.", "<⟦ann@example.com⟧>, ⟦bob@example.org⟧;", "mailto:⟦ann@example.com⟧?subject=x",
			"⟦o'neil@example.com⟧", "'⟦ann@example.com⟧'", "⟦ann%40example.com⟧", "⟦jürgen@müller.example⟧", "邮箱⟦ann@example.com⟧。", `⟦"ann b"@example.com⟧`, "⟦ann@[192.0.2.1]⟧",
			"ann@localhost", "npm i left-pad@1.3.0", "@scope/package@2.0.1", "git@github.com:a/b.git", "logo@2x.png", "a @ b.example", "@odata.type", "user@",
		},
		switchboard.DetectPhone: {
			"Call ⟦+49 30 1234567⟧ now", "⟦+1 (202) 555-0143⟧", "⟦+442071838750⟧", "⟦0044 20 7183 8750⟧", "tel:⟦+14155552671⟧", "⟦(202) 456-1111⟧", "⟦202-456-1111⟧ or ⟦1-202-456-1111⟧",
			"phone = ⟦4155552671⟧", "mobileNumber = ⟦0171 1234567⟧", "Tel. ⟦030/1234567⟧", "the phone number is ⟦4155552671⟧", "⟦+49 30 1234567⟧\n⟦+49 30 7654321⟧", "⟦202-456-1111 ext. 17⟧",
			"⟦030 901820⟧", "0309 01820", "030 901 820", "⟦020 7183 8750⟧", "020 718 38750", "⟦03-1234-5678⟧", "03-12-345678",
			"id = 4155552671", "order 4155552671", "2026-11-23 10:15:30", "1732356930123", "ISBN 978-3-16-148410-0", "phone = 2026-11-23", "call 555 times", "12-345-6789-0", "1.234.567", "+1", "3 + 49301234567890123",
			"0123456789abcdef", "52.520008, 13.404954", "port 8080",
		},
		switchboard.DetectCard: {
			"⟦4111111111111111⟧", "⟦4111 1111 1111 1111⟧", "card:⟦5500-0000-0000-0004⟧.", "⟦3782 822463 10005⟧", "⟦378282246310005⟧", "⟦6011000990139424⟧",
			"⟦3530111333300000⟧", "card_⟦4111111111111111⟧_x", "4111111111111112", "4111 1111-1111 1111", "41111111111111111111", "1.4111111111111111", "x4111111111111111",
			"⟦4111\u00a01111\u00a01111\u00a01111⟧", "⟦4111\u202f1111\u202f1111\u202f1111⟧", "⟦4111.1111.1111.1111⟧", "⟦4111  1111  1111  1111⟧",
			"0000000000000000", "550e8400-e29b-4111-1111-111111111111", "1732356930123456",
		},
		switchboard.DetectIBAN: {
			"⟦DE89370400440532013000⟧", "⟦DE89 3704 0044 0532 0130 00⟧", "iban:⟦GB82 WEST 1234 5698 7654 32⟧,", "⟦gb82west12345698765432⟧", "⟦NO9386011117947⟧", "⟦FR14-2004-1010-0505-0001-3M02-606⟧", "⟦DE89\u00a03704\u00a00044\u00a00532\u00a00130\u00a000⟧", "⟦DE89.3704.0044.0532.0130.00⟧",
			"DE89370400440532013001", "DE8937040044053201300", "XDE89370400440532013000", "XX89370400440532013000", "DE89370400440532013000x",
		},
		switchboard.DetectIP: {
			"⟦192.0.2.1⟧", "http://⟦192.0.2.1⟧:8080/x", "⟦10.0.0.0⟧/8", "from ⟦2001:db8::1⟧.", "[⟦2001:db8::1⟧]:443", "⟦::1⟧", "⟦fe80::1ff:fe23:4567:890a⟧", "⟦::ffff:192.0.2.1⟧", "⟦192.0.2.1⟧-⟦192.0.2.9⟧",
			"version 1.2.3.4", "v1.2.3.4", "version = 1.2.3.4", "1.2.3.4.5", "256.1.1.1", "01.2.3.4", "192.0.2", "10:15:30", "a::b", "std::string", "00:1a:2b:3c:4d:5e", "1.2.3.4-beta",
		},
		switchboard.DetectSecret: {
			"postgres://ann:⟦s3cr3t-pw⟧@db.example/x", "password = ⟦hunter2hunter2⟧", "clientSecret = ⟦a-b-c-d⟧", "Authorization: Bearer ⟦abc.def123-ghi⟧", "authorization = ⟦Basic YW5uOnB3⟧",
			`Result: {"password": "⟦hunter22⟧"}`, "{\"a\":1,\"password\":\"⟦hunter22⟧\"}\n{\"password\":\"⟦hunter23⟧\"}", `{"db_passwords":"⟦hunter22⟧"}`, `{"passphrase" : "⟦my pass \" word⟧"}`, "password = ⟦my pass word⟧",
			`{"passwordPolicy":"at least ten"}`, `{"max_tokens":"4096"}`, `{"password":null}`, `{"secret": "what nobody is to know of us"}`,
			"password = ********", "password = ", "password = type your password here", "tokens = 4096", "the secret of success", "https://example.com/a@b:c", "Bearer of news",
			"-----BEGIN PRIVATE KEY----- as such",
		},
	} {
		for _, marked := range texts {
			t.Run(string(kind)+" in "+marked, func(t *testing.T) {
				name, text, ok := strings.Cut(marked, " = ")
				if !ok {
					name, text = "", marked
				}
				text, want := unmark(text)
				var got []string
				for _, f := range detect.New([]switchboard.Detector{kind}).Find(text, name) {
					if f.Kind != kind {
						t.Errorf("it is a %s", f.Kind)
					}
					got = append(got, text[f.From:f.To])
				}
				if !slices.Equal(got, want) {
					t.Errorf("found %q, want %q", got, want)
				}
			})
		}
	}
}

// unmark removes the brackets, and returns what they contained.
func unmark(marked string) (text string, data []string) {
	for {
		before, rest, ok := strings.Cut(marked, "⟦")
		text += before
		if !ok {
			return text, data
		}
		datum, after, _ := strings.Cut(rest, "⟧")
		text, data, marked = text+datum, append(data, datum), after
	}
}

func TestAJSONNumberIsDataByTheNameOfItsMember(t *testing.T) {
	for _, tt := range []struct {
		kind        switchboard.Detector
		name, spelt string
		want        bool
	}{
		{switchboard.DetectPhone, "phone", "4155552671", true},
		{switchboard.DetectPhone, "id", "4155552671", false},
		{switchboard.DetectPhone, "phone", "-4155552671", false},
		{switchboard.DetectCard, "", "4111111111111111", true},
		{switchboard.DetectCard, "", "4111111111111111.5", false},
		{switchboard.DetectCard, "", "4111111111111112", false},
	} {
		if _, got := detect.New([]switchboard.Detector{tt.kind}).Number(tt.spelt, tt.name); got != tt.want {
			t.Errorf("%s = %s is a %s: %v", tt.name, tt.spelt, tt.kind, got)
		}
	}
}

func TestOnlyWantedDetectorsFindData(t *testing.T) {
	text := "ann@example.com +49 30 1234567 4111111111111111 DE89370400440532013000 192.0.2.1 postgres://a:secret-1@localhost"
	for _, kind := range switchboard.Detectors {
		found := detect.New([]switchboard.Detector{kind}).Find(text, "")
		if len(found) != 1 || found[0].Kind != kind {
			t.Errorf("%s finds %v", kind, found)
		}
	}
	if found := detect.New(nil).Find(text, "password"); len(found) > 0 {
		t.Errorf("no detector finds %v", found)
	}
}

// The limit is two hundred times the measured time: a search that is not linear takes minutes.
func TestNoTextMakesTheSearchSlow(t *testing.T) {
	for name, one := range hardTexts {
		t.Run(name, func(t *testing.T) {
			text := strings.Repeat(one, 1<<20/len(one))
			began := time.Now()
			detect.New(switchboard.Detectors).Find(text, "")
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("1 MiB takes %s", took)
			}
		})
	}
}

// hardTexts are repeated: look-alikes of data, and dense data.
var hardTexts = map[string]string{
	"prose":                 "a line of a log that says nothing of note, at 12:30 of day 17\n",
	"phone numbers":         "+49 30 1234567 ",
	"almost phone numbers":  "+49 1 2 3 4 5 6 7 8 9 ",
	"national numbers":      "030 1234 5678 ",
	"digits":                "1234567890",
	"digits, parted":        "1 2 3 4 5 6 7 8 9 0 ",
	"cards":                 "4111 1111 1111 1111 ",
	"almost cards":          "4111 1111 1111 1112 ",
	"addresses":             "ann@example.com ",
	"signs":                 "@",
	"signs and letters":     "a@a@",
	"one domain":            "a@a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.",
	"colons":                ":",
	"almost IPv6":           "1:2:3:4:5:6:7:8:9:",
	"almost IPv4":           "1.2.3.4.5.6.7.8.9.",
	"keywords":              "api_key secret token password auth ",
	"assignments":           `api_key = "`,
	"credentials":           "AKIA" + "QWERTYUIOPASDFGH ",
	"almost credentials":    "ghp_ sk_live_ xoxb- eyJ glpat- AKIA ",
	"keys without an end":   "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\n",
	"URLs":                  "https://a:b",
	"one row of characters": "abcdef0123456789",
	"bearers":               "bearer bearer1 ",
}

func FuzzFind(f *testing.F) {
	f.Add("ann@example.com, +49 30 1234567, 4111 1111 1111 1111", "phone")
	f.Add("postgres://a:b@c -----BEGIN PRIVATE KEY-----\n api_key=abc123def456ghi789", "password")
	f.Add("2001:db8::1 192.0.2.1 DE89 3704 0044 0532 0130 00 \xff\x00", "")
	for name, text := range hardTexts {
		f.Add(strings.Repeat(text, 3), name)
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		for _, found := range detect.New(switchboard.Detectors).Find(text, name) {
			if found.From < 0 || found.From >= found.To || found.To > len(text) {
				t.Fatalf("%+v is not within %d bytes", found, len(text))
			}
		}
	})
}

func BenchmarkFind(b *testing.B) {
	for _, name := range []string{"prose", "addresses", "phone numbers", "credentials", "keywords", "digits, parted"} {
		text := strings.Repeat(hardTexts[name], 1<<20/len(hardTexts[name])+1)[:1<<20]
		b.Run(fmt.Sprintf("1 MiB of %s", name), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				detect.New(switchboard.Detectors).Find(text, "")
			}
		})
	}
}
