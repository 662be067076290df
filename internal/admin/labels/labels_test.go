package labels_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/labels"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// offered returns a list of tools of the server files.
func offered(t *testing.T, tools ...string) *admin.OfferList {
	t.Helper()
	taxonomy, err := switchboard.NewTaxonomy(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	list := &admin.OfferList{Taxonomy: taxonomy}
	for _, text := range tools {
		name, rest, _ := strings.Cut(text, " ")
		definition := fmt.Appendf(nil, `{"name":%q%s}`, name, rest)
		list.Tools = append(list.Tools, admin.OfferedTool{Server: "files", Tool: name, Definition: definition, Digest: canonical.Sum(definition)})
	}
	return list
}

func TestSuggestionsThatNeedALookComeFirst(t *testing.T) {
	list := offered(
		t,
		`read_file ,"description":"Read a file.","annotations":{"readOnlyHint":true}`,
		`frobnicate `,
		`delete_file ,"description":"Delete a file.","annotations":{"readOnlyHint":true}`,
		`list_files ,"description":"List files."`,
	)
	list.Tools[3].Labels = []string{"read fs (tool)"}
	all := labels.List(list, "files")
	var names []string
	for _, s := range all {
		names = append(names, s.Tool)
		if (s.Overlay == "") != (s.Capability == nil) || s.Overlay != "" && !strings.Contains(s.Overlay, string(s.Digest)) {
			t.Errorf("%s: the overlay is %q", s.Tool, s.Overlay)
		}
	}
	if !slices.Equal(names, []string{"delete_file", "frobnicate", "read_file"}) || !slices.IsSortedFunc(all, func(a, b labels.LabelSuggestion) int { return strings.Compare(labels.PlaceOf(a), labels.PlaceOf(b)) }) {
		t.Errorf("the order is %q", names)
	}
}

// The Editor is nil: nothing reaches the file.
func TestARowIsRefusedBeforeTheFileIsTouched(t *testing.T) {
	list := offered(t, `read_file ,"description":"Read a file."`, `send_email ,"description":"Send an email to a person."`, `list_files ,"description":"List files."`, `stat_file ,"description":"Read a file."`)
	list.Tools[2].Labels = []string{"read fs (tool)"}
	list.Tools[3].Described = true
	digest := func(i int) switchboard.Digest { return list.Tools[i].Digest }
	for _, c := range []struct {
		what string
		rows []labels.NamedRow
		code switchboard.Code
	}{
		{"another definition", []labels.NamedRow{{Tool: "read_file", Digest: "sha256:0"}}, switchboard.CodeChangedMeanwhile},
		{"a tool that is not offered", []labels.NamedRow{{Tool: "nosuch", Digest: digest(0)}}, switchboard.CodeChangedMeanwhile},
		{"a tool without a suggestion", []labels.NamedRow{{Tool: "send_email", Digest: digest(1)}}, switchboard.CodeBadArguments},
		{"a labelled tool", []labels.NamedRow{{Tool: "list_files", Digest: digest(2)}}, switchboard.CodeBadArguments},
		{"a tool that an overlay describes", []labels.NamedRow{{Tool: "stat_file", Digest: digest(3)}}, switchboard.CodeBadArguments},
		{"twice", []labels.NamedRow{{Tool: "read_file", Digest: digest(0)}, {Tool: "read_file", Digest: digest(0)}}, switchboard.CodeBadArguments},
		{"one of two", []labels.NamedRow{{Tool: "read_file", Digest: digest(0)}, {Tool: "send_email", Digest: digest(0)}}, switchboard.CodeChangedMeanwhile},
		{"no overlay", []labels.NamedRow{{Tool: "read_file", Digest: digest(0), Overlay: []byte("[]")}}, switchboard.CodeBadArguments},
	} {
		_, err := labels.Accept(t.Context(), list, "files", c.rows, nil, switchboard.Officer{Operator: true}, "")
		if refused, ok := errors.AsType[*switchboard.Error](err); !ok || refused.Code != c.code {
			t.Errorf("%s: %v, want %s", c.what, err, c.code)
		}
	}
}
