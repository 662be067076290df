package lazyexpand

import (
	"slices"
	"strings"
	"unicode"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// FoldGroup and FoldStub are the group that contains all tools of a task with too many tools for a list, and its
// stub; see Fold.
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

// Plan returns the on-demand group of each selected tool, and the stub of each group with members. services returns
// the split of a server's tools that its configuration defines; count counts the tokens of a stub. Both results are
// nil if nothing is on demand.
func Plan(task *switchboard.Task, selected []decide.Selected, services func(switchboard.ServerID) []switchboard.Service, count func(definition []byte) int) ([]surface.Membership, []surface.Group) {
	if !slices.ContainsFunc(task.Requirements, func(r switchboard.Requirement) bool { return r.OnDemand }) {
		return nil, nil
	}
	places := make([]surface.Membership, len(selected))
	members := map[string][]int{} // by group: indexes into selected
	var groups []*switchboard.Requirement
	for i, s := range selected {
		r := demandRequirement(task, s)
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
		split := assignServices(r.Group, ids, services)
		for j, i := range members[r.Group] {
			places[i] = surface.Membership{Group: r.Group, Service: split[j]}
		}
		out = append(out, surface.Group{ID: r.Group, Stub: r.Stub, Definition: stubDefinition(r.Group, r.Stub, split, count)})
	}
	return places, out
}

// demandRequirement returns the requirement that makes the tool on demand, nil if any of its requirements is
// essential.
func demandRequirement(task *switchboard.Task, s decide.Selected) *switchboard.Requirement {
	for _, i := range s.Requirements {
		if !task.Requirements[i].OnDemand {
			return nil
		}
	}
	return &task.Requirements[s.Requirements[0]]
}

// assignServices returns the service of each member of a group: the service in its server's configuration; otherwise
// its server if the group has several; otherwise the first word of its name if other members share that word.
func assignServices(group string, ids []switchboard.ToolID, services func(switchboard.ServerID) []switchboard.Service) []string {
	several := slices.ContainsFunc(ids, func(id switchboard.ToolID) bool { return id.Server != ids[0].Server })
	begin := map[string]int{}
	if !several {
		for _, id := range ids {
			begin[firstWord(id.Name)]++
		}
	}
	out := make([]string, len(ids))
	for i, id := range ids {
		begins := firstWord(id.Name)
		switch said := configuredService(services(id.Server), id.Name); {
		case said != "":
			out[i] = said
		case several:
			out[i] = string(id.Server)
		case begin[begins] > 1 && begin[begins] < len(ids):
			out[i] = begins
		case len(begin) > 1 && begin[begins] == 1 && len(begin) < len(ids):
			out[i] = "other"
		default: // nothing distinguishes them
			out[i] = group
		}
	}
	return out
}

func configuredService(services []switchboard.Service, tool string) string {
	for i := range services {
		if services[i].Has(tool) {
			return services[i].Name
		}
	}
	return ""
}

// firstWord returns the first word of a name, in lower case: the s3 of s3_put_object, the list of listBuckets.
func firstWord(name string) string {
	for i, c := range name {
		hump := unicode.IsUpper(c) && i > 0 && !unicode.IsUpper(rune(name[i-1]))
		if i > 0 && (hump || strings.ContainsRune("_-./ ", c)) {
			return strings.ToLower(name[:i])
		}
	}
	return strings.ToLower(name)
}
