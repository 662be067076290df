// Package policysource finds the files of policy layers: in a configuration, at paths, and among
// the shipped files.
//
// It decides which layer a file belongs to. Package policy compiles the files, and package config
// reads a whole configuration.
package policysource

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/policies"
)

// Of returns the files of all layers of a configuration: first the operator's layer,
// then those of the tenants by id.
func Of(c *config.Config) []*author.Sources {
	operator := &author.Sources{Kind: policy.Operator, Name: "policies", Files: c.Policies}
	if c.Policies == nil {
		operator = &author.Sources{Kind: policy.Operator, Name: "policies (shipped)", Files: Shipped(), Shipped: true}
	}
	all := []*author.Sources{operator}
	for _, id := range slices.Sorted(maps.Keys(c.TenantPolicies)) {
		all = append(all, &author.Sources{
			Kind: policy.Tenant, Tenant: id, Name: filepath.Join("tenants", string(id), "policies"), Files: c.TenantPolicies[id],
		})
	}
	return all
}

// At returns the layers of the policies at the paths, without a configuration. A path is a file, or
// a folder with all files below it. The folder of a configuration means its policy folders. The
// files in tenants/<id>/policies are the layer of that tenant. All other files are one layer; their
// packages say which kind of layer it is.
func At(paths []string) ([]*author.Sources, error) {
	var all []*author.Sources
	for _, given := range paths {
		rules := false
		for _, at := range policyFolders(given) {
			files, err := config.PolicyFiles(at)
			if err != nil {
				return nil, err
			}
			rules = rules || !isFolder(at) || slices.ContainsFunc(files, isRego)
			s := layerAt(&all, tenantOfPath(at))
			s.Name = strings.TrimPrefix(s.Name+", "+filepath.Clean(at), ", ")
			for _, f := range files {
				if !slices.ContainsFunc(s.Files, func(o switchboard.PolicyFile) bool { return o.Name == f.Name }) {
					s.Files = append(s.Files, f)
				}
			}
		}
		if !rules {
			return nil, fmt.Errorf("%s: there are no policies (.rego) in this folder", given)
		}
	}
	for _, s := range all {
		if s.Tenant == "" {
			var err error
			if s.Kind, err = layerKind(s.Files); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// policyFolders returns the policy folders if the path is the folder of a configuration, of its
// tenants or of one tenant. It returns any other path unchanged.
func policyFolders(at string) []string {
	var patterns []string
	switch whole := SlashPath(at); {
	case exists(filepath.Join(at, "switchboard.yaml")) || exists(filepath.Join(at, "tenants")):
		patterns = []string{"policies", "tenants/*/policies"}
	case path.Base(whole) == "tenants":
		patterns = []string{"*/policies"}
	case path.Base(path.Dir(whole)) == "tenants" && isFolder(at):
		patterns = []string{"policies"}
	default:
		return []string{at}
	}
	var folders []string
	for _, p := range patterns {
		found, _ := fs.Glob(os.DirFS(at), p) // its only error is a bad pattern
		for _, f := range found {
			folders = append(folders, filepath.Join(at, f))
		}
	}
	return folders
}

func isFolder(at string) bool {
	info, err := os.Stat(at)
	return err == nil && info.IsDir()
}

func isRego(f switchboard.PolicyFile) bool { return path.Ext(f.Path) == ".rego" }

// tenantOfPath returns the tenant of the last folder tenants/<id>/policies in a path, or "" if
// there is no such folder.
func tenantOfPath(at string) switchboard.TenantID {
	before, _, ok := CutLast(SlashPath(at)+"/", "/policies/")
	if !ok {
		return ""
	}
	return TenantOfFolder(before + "/policies")
}

// layerAt returns the tenant's layer among all. If there is none, it adds one.
func layerAt(all *[]*author.Sources, id switchboard.TenantID) *author.Sources {
	i := slices.IndexFunc(*all, func(s *author.Sources) bool { return s.Tenant == id })
	if i < 0 {
		i = len(*all)
		*all = append(*all, &author.Sources{Kind: policy.Tenant, Tenant: id})
	}
	return (*all)[i]
}

// layerKind returns the kind of the layer, which the packages of its rules say. If there are only
// tests and data, or files with errors, it is the operator's kind.
func layerKind(files []switchboard.PolicyFile) (policy.LayerKind, error) {
	first := map[policy.LayerKind]string{}
	for _, f := range files {
		if !isRego(f) || policy.IsTest(f.Path) {
			continue
		}
		for _, kind := range []policy.LayerKind{policy.Operator, policy.Tenant} {
			if _, err := policy.Parse(kind, f); err == nil && first[kind] == "" {
				first[kind] = f.Name
			}
		}
	}
	switch {
	case first[policy.Tenant] == "":
		return policy.Operator, nil
	case first[policy.Operator] == "":
		return policy.Tenant, nil
	}
	return "", fmt.Errorf("%s is in the operator's package and %s in a tenant's; a layer is tested alone, so give the files of one layer", first[policy.Operator], first[policy.Tenant])
}

// LayerOwner returns the tenant of the layer that the file in the folder belongs to; "" means the
// operator.
func LayerOwner(f switchboard.PolicyFile, folder string, tenant switchboard.TenantID) (switchboard.TenantID, error) {
	if t := TenantOfFolder(folder); t != "" {
		return t, nil
	}
	if _, err := policy.Parse(policy.Operator, f); err == nil {
		return "", nil
	}
	if _, err := policy.Parse(policy.Tenant, f); err != nil {
		_, err = policy.Compile(policy.Operator, []switchboard.PolicyFile{f}) // for its error
		return "", err
	}
	if tenant == "" {
		return "", fmt.Errorf("%s: it belongs to a tenant's layer; name the tenant with --tenant", f.Name)
	}
	return tenant, nil
}

// TenantOfFolder returns the tenant of a folder tenants/<id>/policies, or "" if the path has
// another form.
func TenantOfFolder(folder string) switchboard.TenantID {
	parts := strings.Split(SlashPath(folder), "/")
	if n := len(parts); n >= 3 && parts[n-1] == "policies" && parts[n-3] == "tenants" {
		return switchboard.TenantID(parts[n-2])
	}
	return ""
}

// SlashPath returns the absolute path of a file, with slashes.
func SlashPath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return filepath.ToSlash(path)
}

// CutLast cuts s around the last sep.
func CutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Shipped returns the files of the operator's layer for a configuration that has none.
func Shipped() (files []switchboard.PolicyFile) {
	names, err := fs.Glob(policies.Shipped, "*")
	if err != nil {
		panic(err) // the pattern is constant
	}
	for _, name := range names {
		if policies.IsBoundaries(name) {
			continue
		}
		text, err := policies.Shipped.ReadFile(name)
		if err != nil {
			panic(err) // the file is embedded
		}
		files = append(files, switchboard.PolicyFile{Name: "policies/" + name, Path: name, Data: text})
	}
	return files
}
