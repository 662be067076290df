// Package registry is a registry of npm packages for tests: it serves what a test publishes to npm's own client.
package registry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A Registry serves packages. Use Serve. It is safe for concurrent use.
type Registry struct {
	URL string

	mu       sync.Mutex
	packages map[string]*published
	tarballs map[string][]byte // by path
}

// A published package has its versions, and the one that was published last.
type published struct {
	versions map[string]any
	latest   string
}

// Serve starts a registry, which ends with the test.
func Serve(t *testing.T) *Registry {
	t.Helper()
	r := &Registry{packages: map[string]*published{}, tarballs: map[string][]byte{}}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	r.URL = s.URL
	return r
}

// Env returns the environment of this process with variables that make npm use the registry. npm then uses no settings or caches of the user.
func (r *Registry) Env(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	return append(os.Environ(), "NPM_CONFIG_REGISTRY="+r.URL+"/", "NPM_CONFIG_FETCH_RETRIES=0", "NPM_CONFIG_CACHE="+home, "NPM_CONFIG_USERCONFIG="+home+"/none", "NPM_CONFIG_GLOBALCONFIG="+home+"/no-global")
}

// Publish publishes a version of a package with these files, its program index.js, and these other packages that it needs, by name. Files may hold package.json, whose
// members are added. A version that is there already is replaced, as no honest registry does.
func (r *Registry) Publish(t *testing.T, name, version string, files map[string]string, needs map[string]string) {
	t.Helper()
	manifest := map[string]any{"name": name, "version": version, "bin": map[string]string{name: "index.js"}}
	if len(needs) > 0 {
		manifest["dependencies"] = needs
	}
	if text, ok := files["package.json"]; ok {
		if err := json.Unmarshal([]byte(text), &manifest); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(files)
	all["package.json"] = string(text)
	tarball := pack(t, all)
	sum := sha512.Sum512(tarball)
	path := fmt.Sprintf("/%s/-/%s-%s.tgz", name, name, version)
	manifest["dist"] = map[string]string{"tarball": r.URL + path, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
	if scripts, _ := manifest["scripts"].(map[string]any); scripts["install"] != nil {
		manifest["hasInstallScript"] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.packages[name]
	if p == nil {
		p = &published{versions: map[string]any{}}
		r.packages[name] = p
	}
	p.versions[version], p.latest = manifest, version
	r.tarballs[path] = tarball
}

// ReplaceTarball serves other bytes in the place of a version, and leaves what the registry says about it.
func (r *Registry) ReplaceTarball(t *testing.T, name, version string, files map[string]string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tarballs[fmt.Sprintf("/%s/-/%s-%s.tgz", name, name, version)] = pack(t, files)
}

// ServeHTTP answers npm.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if tarball, ok := r.tarballs[req.URL.Path]; ok {
		_, _ = w.Write(tarball)
		return
	}
	name := strings.TrimPrefix(req.URL.Path, "/")
	p := r.packages[name]
	if p == nil {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"name": name, "dist-tags": map[string]string{"latest": p.latest}, "versions": p.versions})
}

// pack returns the tarball of the files, as npm packs them.
func pack(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o755, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
