package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/policysource"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// policyTestTime limits a run of the tests of one layer.
const policyTestTime = 30 * time.Second

// A PolicyLayerRow is a layer of policies in force, with its files.
type PolicyLayerRow struct {
	Layer   string               `json:"layer"`
	Tenant  switchboard.TenantID `json:"tenant,omitempty"` // "" for the operator's layer
	Shipped bool                 `json:"shipped"`          // the policies that come with Switchboard
	Files   []PolicyFileRow      `json:"files"`
}

// A PolicyFileRow is one file of a layer.
type PolicyFileRow struct {
	Path   string `json:"path"` // in the layer's folder
	Bytes  int    `json:"bytes"`
	Digest string `json:"digest"` // SHA-256
	Test   bool   `json:"test"`
}

// A PolicyReader reads and tests the policies of the present configuration.
type PolicyReader struct{ Configuration func() Configuration }

// List returns the layer of a tenant; all layers for the empty tenant, the operator's first.
func (r PolicyReader) List(tenant switchboard.TenantID) []PolicyLayerRow {
	rows := []PolicyLayerRow{}
	for _, s := range policysource.Of(r.Configuration().Config) {
		if tenant != "" && s.Tenant != tenant {
			continue
		}
		row := PolicyLayerRow{Layer: s.Name, Tenant: s.Tenant, Shipped: s.Shipped, Files: []PolicyFileRow{}}
		for _, f := range s.Files {
			sum := sha256.Sum256(f.Data)
			row.Files = append(row.Files, PolicyFileRow{f.Path, len(f.Data), "sha256:" + hex.EncodeToString(sum[:]), policy.IsTest(f.Path)})
		}
		rows = append(rows, row)
	}
	return rows
}

// Test runs the tests of a tenant's layer, or of the operator's for the empty tenant. files replace files of the layer by their paths, or are
// added. The error is a *switchboard.Error: SB-CONF-001 if the files do not compile.
func (r PolicyReader) Test(ctx context.Context, tenant switchboard.TenantID, files map[string]string) (*author.TestReport, error) {
	ctx, cancel := context.WithTimeout(ctx, policyTestTime)
	defer cancel()
	layer := &author.Sources{Kind: policy.Tenant, Tenant: tenant, Name: "tenants/" + string(tenant) + "/policies"}
	for _, s := range policysource.Of(r.Configuration().Config) {
		if s.Tenant == tenant {
			own := *s
			layer = &own
		}
	}
	layer.Files = slices.Clone(layer.Files)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if !fs.ValidPath(path) || path == "." {
			return nil, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: fmt.Sprintf("%.200q is no path of a file in the layer", path)}
		}
		f := switchboard.PolicyFile{Name: layer.Name + "/" + path, Path: path, Data: []byte(files[path])}
		if i := slices.IndexFunc(layer.Files, func(o switchboard.PolicyFile) bool { return o.Path == path }); i >= 0 {
			layer.Files[i] = f
		} else {
			layer.Files = append(layer.Files, f)
		}
	}
	report, err := author.RunTests(ctx, layer, "", false)
	if found, ok := errors.AsType[switchboard.Faults](err); ok {
		texts := make([]string, len(found))
		for i, f := range found {
			texts[i] = f.String()
		}
		return nil, &switchboard.Error{Code: switchboard.CodeConfig, Text: "the policies do not compile: " + strings.Join(texts, "; ")}
	}
	if err != nil && ctx.Err() != nil {
		return nil, switchboard.Refuse(switchboard.CodeOverloaded, "the tests take longer than %s; \"switchboard policy test\" runs them without a limit", policyTestTime)
	}
	return report, err
}
