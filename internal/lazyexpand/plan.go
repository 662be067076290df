package lazyexpand

import (
	"slices"
	"strings"
	"unicode"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// FoldGroup and FoldStub are the group that all tools of a task become which are
// too many to be listed, and its stub; see Fold.
const (
	FoldGroup = "tools"
	FoldStub  = "tools_helper"
)

// Fold returns the task with everything on demand, in one group.
func Fold(task *switchboard.Task) *switchboard.Task {
	folded := *task
	folded.Requirements = slices.Clone(task.Requirements)
	for i := range folded.Requirements {
		r := &folded.Requirements[i]
		r.OnDemand, r.Group, r.Stub = true, FoldGroup, FoldStub
	}
	return &folded
}

// Plan says which of a task's selected tools are members of which group, and what
// stands for each group that has any. services are a server's own split of its
// tools, and count counts the tokens of a stub. Both results are nil where nothing is on
// demand.
func Plan(task *switchboard.Task, selected []decide.Selected, services func(switchboard.ServerID) []switchboard.Service, count func(definition []byte) int) ([]surface.Place, []surface.Group) {
	if !slices.ContainsFunc(task.Requirements, func(r switchboard.Requirement) bool { return r.OnDemand }) {
		return nil, nil
	}
	places := make([]surface.Place, len(selected))
	members := map[string][]int{} // of each group, by their places in selected
	var groups []*switchboard.Requirement
	for i, s := range selected {
		r := groupOf(task, s)
		if r == nil {
			continue
		}
		if members[r.Group] == nil {
			groups = append(groups, r)
		}
		members[r.Group] = append(members[r.Group], i)
	}
	out := make([]surface.Group, 0, len(groups))
	for _, r := range groups {
		ids := make([]switchboard.ToolID, len(members[r.Group]))
		for j, i := range members[r.Group] {
			ids[j] = selected[i].Tool.ID
		}
		split := split(r.Group, ids, services)
		for j, i := range members[r.Group] {
			places[i] = surface.Place{Group: r.Group, Service: split[j]}
		}
		out = append(out, surface.Group{ID: r.Group, Stub: r.Stub, Definition: definition(r.Group, r.Stub, split, count)})
	}
	return places, out
}

// groupOf returns the requirement by which the tool is on demand, nil where one
// has it as essential.
func groupOf(task *switchboard.Task, s decide.Selected) *switchboard.Requirement {
	for _, i := range s.Requirements {
		if !task.Requirements[i].OnDemand {
			return nil
		}
	}
	return &task.Requirements[s.Requirements[0]]
}

// split gives each member of a group its service: as the configuration of its
// server says, else its server where the group has several, else what its name
// begins with, where others of the group begin so too.
func split(group string, ids []switchboard.ToolID, services func(switchboard.ServerID) []switchboard.Service) []string {
	several := slices.ContainsFunc(ids, func(id switchboard.ToolID) bool { return id.Server != ids[0].Server })
	begin := map[string]int{}
	if !several {
		for _, id := range ids {
			begin[prefix(id.Name)]++
		}
	}
	out := make([]string, len(ids))
	for i, id := range ids {
		begins := prefix(id.Name)
		switch said := configured(services(id.Server), id.Name); {
		case said != "":
			out[i] = said
		case several:
			out[i] = string(id.Server)
		case begin[begins] > 1 && begin[begins] < len(ids):
			out[i] = begins
		case len(begin) > 1 && begin[begins] == 1 && len(begin) < len(ids):
			out[i] = "other"
		default: // there is nothing to tell them apart by
			out[i] = group
		}
	}
	return out
}

func configured(services []switchboard.Service, tool string) string {
	for i := range services {
		if services[i].Has(tool) {
			return services[i].Name
		}
	}
	return ""
}

// prefix is the first word of a name, in lower case: the s3 of s3_put_object, the
// list of listBuckets.
func prefix(name string) string {
	for i, c := range name {
		hump := unicode.IsUpper(c) && i > 0 && !unicode.IsUpper(rune(name[i-1]))
		if i > 0 && (hump || strings.ContainsRune("_-./ ", c)) {
			return strings.ToLower(name[:i])
		}
	}
	return strings.ToLower(name)
}
