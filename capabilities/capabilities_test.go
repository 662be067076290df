package capabilities_test

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/summit-switchboard/switchboard/capabilities"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/config"
)

// In an operator's folder, the standard capabilities have no fault and no warning, and each is published.
func TestTheStandardCapabilitiesHaveNoFaults(t *testing.T) {
	t.Parallel()
	fsys := fstest.MapFS{"switchboard.yaml": {Data: []byte("servers: {files: {transport: stdio, command: [files]}}\ntenants: {acme: {servers: [files], permissions: [\"fs:read\", \"fs:write\", \"net:outbound\", \"sys:exec\"]}}\n")}}
	entries, err := fs.ReadDir(capabilities.Standard, ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := fs.ReadFile(capabilities.Standard, e.Name())
		if err != nil {
			t.Fatal(err)
		}
		fsys["capabilities/"+e.Name()] = &fstest.MapFile{Data: data}
	}
	c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fsys})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range c.Warnings {
		if !strings.Contains(w.String(), "no server provides") { // none does here
			t.Errorf("there is a warning: %s", w)
		}
	}
	if ids := c.Registry.IDs(); !slices.Equal(ids, []string{"io.fs.read", "io.fs.write", "net.http.get", "sys.cmd.exec"}) {
		t.Errorf("the capabilities are %s", ids)
	}
	for _, id := range c.Registry.IDs() {
		v := c.Registry.Find(capability.Ref{ID: id, Range: "^1"}, nil)
		if v == nil || v.Status != capability.Active || !v.GrantedTo(c.Tenants["acme"].Permissions, nil) || v.GrantedTo(nil, nil) {
			t.Errorf("%s is %+v", id, v)
		}
	}
}
