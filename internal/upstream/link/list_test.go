package link

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/strictclient"
)

// itemsOf returns the items as bytes.
func itemsOf(texts ...string) (items [][]byte) {
	for _, text := range texts {
		items = append(items, []byte(text))
	}
	return items
}

func TestAnItemThatClientsWouldRefuseIsLeftOutAlone(t *testing.T) {
	for _, tt := range []struct {
		kind       switchboard.Kind
		sent, want []string
		note       string
	}{
		{switchboard.Resources, []string{`{"uri":"a","name":"a"}`}, []string{`{"uri":"a","name":"a"}`}, ""},
		{
			switchboard.Resources,
			[]string{`{"uri":"a","name":"a"}`, `{"uri":"b","description":null}`, `{"uri":"c","size":"7"}`, `{"uri":7}`, `{"name":"d"}`, `{"uri":"e","name":"e","mimeType":null}`},
			[]string{`{"uri":"a","name":"a"}`, `{"uri":"b","name":"b"}`, `{"uri":"e","name":"e"}`},
			`3 of its resources are left out, because clients would refuse the whole list: "c" (size: is a string; want a number), uri: is a number; want a string, uri: is missing`,
		},
		{
			switchboard.Templates,
			[]string{`{"uriTemplate":"a\u202e{b}","name":false}`, `{"uriTemplate":"c","name":"c"}`},
			[]string{`{"uriTemplate":"c","name":"c"}`},
			`1 of its resource templates are left out, because clients would refuse the whole list: "a{b}" (name: is a boolean; want a string)`,
		},
		{
			switchboard.Prompts,
			[]string{`{"name":"a","arguments":null}`, `{"name":"b","arguments":{}}`},
			[]string{`{"name":"a"}`},
			`1 of its prompts are left out, because clients would refuse the whole list: "b" (arguments: is an object; want a list)`,
		},
		{switchboard.Prompts, []string{`{"name":"b","arguments":{}}`}, nil, "1 of its prompts are left out"},
		// The catalog refuses a tool, and names it among the faults.
		{switchboard.Tools, []string{`{"name":"a","inputSchema":{},"title":5}`, `{"name":"b","inputSchema":{}}`}, []string{`{"name":"a","inputSchema":{},"title":5}`, `{"name":"b","inputSchema":{"type":"object"}}`}, ""},
	} {
		got, note := repairItems(tt.kind, itemsOf(tt.sent...))
		if fmt.Sprintf("%s", got) != fmt.Sprintf("%s", tt.want) {
			t.Errorf("%s: %s become %s, want %s", tt.kind, tt.sent, got, tt.want)
		}
		if !strings.HasPrefix(note, tt.note) || tt.note == "" && note != "" {
			t.Errorf("%s: note %s, want %s", tt.kind, note, tt.note)
		}
	}
}

func TestTheNoteNamesFiveItemsThatAreLeftOut(t *testing.T) {
	_, note := repairItems(switchboard.Prompts, slices.Repeat(itemsOf(`{"name":"p","title":1}`), 9))
	if !strings.HasPrefix(note, "9 of its prompts") || !strings.HasSuffix(note, " and 4 more") || strings.Count(note, `"p"`) != 5 {
		t.Errorf("note %s", note)
	}
}

func TestAListThatNeedsNoRepairIsNotCopied(t *testing.T) {
	items := itemsOf(`{"name":"a"}`, `{"name":"b"}`)
	if got, _ := repairItems(switchboard.Prompts, items); &got[0] != &items[0] {
		t.Error("it was copied")
	}
}

func TestARememberedOfferIsRepaired(t *testing.T) {
	kept := switchboard.Offer{
		Server: "s", Tools: itemsOf(`{"name":"t","inputSchema":{}}`), Resources: itemsOf(`{"uri":"a"}`, `{"name":"a"}`),
		Templates: itemsOf(`{"uriTemplate":"a","title":null}`), Prompts: itemsOf(`{"name":"p","arguments":null}`, `{"name":"q","title":1}`),
	}
	got := RepairOffer(&kept)
	for k := range switchboard.NKinds {
		if len(got.List(k)) != 1 {
			t.Errorf("%s: %s", k, got.List(k))
		}
		for _, item := range got.List(k) {
			if err := strictclient.Check(k, false, item); err != nil {
				t.Errorf("%s: %s: %v", k, item, err)
			}
		}
	}
	if got.Server != "s" || len(kept.Resources) != 2 {
		t.Errorf("%+v", got)
	}
	if empty := RepairOffer(&switchboard.Offer{}); empty.Tools != nil {
		t.Error("tools that were never listed are listed")
	}
}
