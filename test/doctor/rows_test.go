//go:build linux

package doctor_test

import (
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/doctor"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/scratch"
)

// freeAddress returns an address that the system gives to no other program.
func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := scratch.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// found returns what the first group of the expression matches in a text.
func (i *installation) found(expression, text string) string {
	i.Helper()
	m := regexp.MustCompile(expression).FindStringSubmatch(text)
	if m == nil {
		i.Fatalf("%q does not match %s", text, expression)
	}
	return m[1]
}

const tenantRow = "tenants: {acme: {servers: [web]}}\n"

var configRows = []broken{
	{
		name: "there is no configuration", cause: "no-configuration", subject: "switchboard.yaml", remedy: "switchboard connect claude-code",
		breaks: func(i *installation) {
			i.do(os.Remove(i.config))
			i.write(".claude.json", fmt.Sprintf(`{"mcpServers": {"web": {"type": "http", "url": %q}}}`, web.URL))
		},
	},
	{
		name: "the configuration is no YAML", cause: "fault", subject: "switchboard.yaml:1:",
		breaks: func(i *installation) { i.edit("servers:\n", "\tservers:\n") },
		mend:   func(i *installation, _ doctor.Diagnosis) { i.edit("\tservers:\n", "servers:\n") },
	},
	{
		name: "a key is misspelt", cause: "fault", subject: "transprot", remedy: `"transport"`,
		breaks: func(i *installation) { i.edit("transport:", "transprot:") },
		mend:   func(i *installation, f doctor.Diagnosis) { i.edit("transprot", i.found(`"(transport)"`, f.Remedy)) },
	},
	{
		name: "a variable is not set", cause: "variable-not-set", subject: "LOOK_TOKEN", remedy: "export LOOK_TOKEN=VALUE",
		breaks: func(i *installation) { i.edit(web.URL+"}", web.URL+`, headers: {X-Token: "${env:LOOK_TOKEN}"}}`) },
		mend:   func(i *installation, f doctor.Diagnosis) { i.env[i.found(`export (\w+)=VALUE`, f.Command)] = "a-value" },
	},
	{
		name: "the file of a secret is not there", cause: "secret-missing", subject: "secrets/look", remedy: ".config/switchboard/secrets/look",
		breaks: func(i *installation) { i.edit(web.URL+"}", web.URL+`, headers: {X-Token: "${file:secrets/look}"}}`) },
		mend: func(i *installation, f doctor.Diagnosis) {
			rig.WriteFile(i.T, i.found(`write the secret into ([^,]+),`, f.Remedy), "a-value")
		},
	},
	{
		name: "the file of a secret is empty", cause: "secret-empty", subject: "secrets/look", remedy: "write the secret",
		breaks: func(i *installation) {
			i.edit(web.URL+"}", web.URL+`, headers: {X-Token: "${file:secrets/look}"}}`)
			i.write(".config/switchboard/secrets/look", "")
		},
		mend: func(i *installation, f doctor.Diagnosis) {
			rig.WriteFile(i.T, i.found(`write the secret into (.+)$`, f.Remedy), "a-value")
		},
	},
	{
		name: "everybody may read a secret", cause: "file-rights", subject: "secrets/look", remedy: "chmod 600",
		breaks: func(i *installation) {
			i.edit(web.URL+"}", web.URL+`, headers: {X-Token: "${file:secrets/look}"}}`)
			i.write(".config/switchboard/secrets/look", "a-value")
			i.do(os.Chmod(filepath.Join(filepath.Dir(i.config), "secrets/look"), 0o644))
		},
	},
	{
		name: "a policy does not compile", cause: "fault", subject: "policies/broken.rego",
		breaks: func(i *installation) {
			i.write(".config/switchboard/policies/broken.rego", "package switchboard.policy\n\ndeny contains c.id if {\n")
		},
		mend: func(i *installation, f doctor.Diagnosis) {
			i.do(os.RemoveAll(filepath.Dir(i.found(`^(.+\.rego)`, f.Subject))))
		},
	},
	{
		name: "a tenant's file has an unknown key", cause: "fault", subject: "tenants/acme/tenant.yaml:1:1",
		breaks: func(i *installation) {
			i.edit("servers:\n", tenantRow+"servers:\n")
			i.write(".config/switchboard/tenants/acme/tenant.yaml", "kees: []\n")
		},
		mend: func(i *installation, _ doctor.Diagnosis) {
			i.write(".config/switchboard/tenants/acme/tenant.yaml", "keys: []\n")
		},
	},
	{
		name: "other machines could call without a key", cause: "fault", subject: "reachable from other machines", remedy: "127.0.0.1",
		breaks: func(i *installation) { i.edit("listen: 127.0.0.1:", "listen: 0.0.0.0:") },
		mend:   func(i *installation, _ doctor.Diagnosis) { i.edit("listen: 0.0.0.0:", "listen: 127.0.0.1:") },
	},
	{
		name: "a key has expired", cause: "key-expired", subject: "key ann of tenant acme", remedy: "switchboard key new ann --tenant acme",
		breaks: func(i *installation) {
			i.edit("servers:\n", tenantRow+"servers:\n")
			i.write(".config/switchboard/tenants/acme/tenant.yaml", "keys: [{id: ann, hash: \"sha256:"+strings.Repeat("ab", 32)+"\", expires: 2024-01-31}]\n")
		},
		mend: func(i *installation, f doctor.Diagnosis) {
			out, err := i.command("/bin/sh", "-c", f.Command).Output()
			i.do(err)
			_, rows, _ := strings.Cut(string(out), "tenant.yaml:\n\n")
			i.write(".config/switchboard/tenants/acme/tenant.yaml", rows)
		},
	},
}

var fileRows = []broken{
	{
		name: "the data folder is a file", cause: "no-folder", subject: ".switchboard", remedy: "mv ",
		breaks: func(i *installation) { i.write(".config/switchboard/.switchboard", "x") },
	},
	{
		name: "everybody may write into the data folder", cause: "file-rights", subject: ".switchboard", remedy: "chmod 700",
		breaks: func(i *installation) { i.mkdir(".config/switchboard/.switchboard"); i.do(os.Chmod(i.data, 0o777)) },
	},
	{
		name: "everybody may read the key of receipts", cause: "file-rights", subject: "receipts.key", remedy: "chmod 600",
		breaks: func(i *installation) {
			i.write(".config/switchboard/.switchboard/receipts.key", "x")
			i.do(os.Chmod(filepath.Join(i.data, "receipts.key"), 0o644))
		},
	},
	{
		name: "everybody may read operator.json", cause: "file-rights", subject: "operator.json", remedy: "chmod 600",
		breaks: func(i *installation) {
			i.write(".config/switchboard/.switchboard/operator.json", `{"rows":[]}`)
			i.do(os.Chmod(filepath.Join(i.data, "operator.json"), 0o644))
		},
	},
	{
		name: "operator.json is damaged", cause: "damaged", subject: "operator.json", remedy: "rm -f",
		breaks: func(i *installation) { i.write(".config/switchboard/.switchboard/operator.json", `{"rows":[{"id"`) },
	},
	{
		name: "the folder of the log is not there", cause: "no-folder", subject: "var/log/switchboard.log", remedy: "mkdir -p",
		breaks: func(i *installation) {
			i.edit("servers:\n", "log: {to: "+filepath.Join(i.home, "var/log/switchboard.log")+"}\nservers:\n")
		},
	},
	{
		name: "a file was changed in the future", cause: "time-to-come", subject: "receipts.key", remedy: "touch",
		breaks: func(i *installation) {
			i.write(".config/switchboard/.switchboard/receipts.key", "x")
			later := time.Now().Add(72 * time.Hour)
			i.do(os.Chtimes(filepath.Join(i.data, "receipts.key"), later, later))
		},
	},
	{
		name: "another program has the port", cause: "port-taken", subject: "doctor.test", remedy: "write listen:",
		breaks: func(i *installation) {
			l, err := scratch.Listen()
			i.do(err)
			i.Cleanup(func() { _ = l.Close() })
			_, port, _ := net.SplitHostPort(l.Addr().String())
			i.edit("listen: ", "listen: 127.0.0.1:"+port+" # not ")
		},
		mend: func(i *installation, f doctor.Diagnosis) {
			i.edit("listen: ", "listen: "+i.found(`write listen: (\S+) into`, f.Remedy)+" # not ")
		},
	},
	{
		name: "the address is not one of this machine", cause: "address", subject: "192.0.2.1", remedy: "an address of this machine",
		breaks: func(i *installation) {
			i.edit("servers:\n", tenantRow+"servers:\n")
			key, rows := rig.NewKey(i.T, "ann")
			i.env["SWITCHBOARD_KEY"] = key
			i.write(".config/switchboard/tenants/acme/tenant.yaml", "keys:\n"+rows)
			i.edit("listen: 127.0.0.1", "listen: 192.0.2.1")
		},
		mend: func(i *installation, _ doctor.Diagnosis) { i.edit("listen: 192.0.2.1", "listen: 127.0.0.1") },
	},
}

// makeStore makes a store with a value in it, and returns its path.
func (i *installation) makeStore() string {
	i.Helper()
	path := filepath.Join(i.data, "store.db")
	s, err := store.OpenFile(path, store.FileOptions{})
	i.do(err)
	_, err = s.Apply(i.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "n", Data: []byte(strings.Repeat("value ", 4000))}}})
	i.do(err)
	i.do(s.Close())
	return path
}

var storeRows = []broken{
	{
		name: "the store is a text", cause: "store-damaged", subject: "store.db", remedy: "mv ",
		breaks: func(i *installation) {
			i.write(".config/switchboard/.switchboard/store.db", strings.Repeat("no store at all\n", 1000))
		},
	},
	{
		name: "the store is empty", cause: "store-damaged", subject: "it is empty", remedy: "rm ",
		breaks: func(i *installation) { i.write(".config/switchboard/.switchboard/store.db", "") },
	},
	{
		name: "the store is the database of another program", cause: "store-damaged", subject: "another program", remedy: "mv ",
		breaks: func(i *installation) {
			i.mkdir(".config/switchboard/.switchboard")
			db, err := sql.Open("sqlite", filepath.Join(i.data, "store.db"))
			i.do(err)
			_, err = db.ExecContext(i.Context(), "CREATE TABLE bookmark (url TEXT)")
			i.do(err)
			i.do(db.Close())
			i.do(os.Chmod(filepath.Join(i.data, "store.db"), 0o600))
		},
	},
	{
		name: "a value in the store was changed on the disk", cause: "store-damaged", subject: "store.db", remedy: "mv ",
		breaks: func(i *installation) {
			path := i.makeStore()
			text := rig.ReadFile(i.T, path)
			at := strings.LastIndex(text, "value value")
			i.do(os.WriteFile(path, []byte(text[:at]+"VALUE"+text[at+5:]), 0o600))
		},
	},
	{
		name: "the store is gone and its newest changes are not", cause: "store-damaged", subject: "its file is gone", remedy: "store.db-wal",
		breaks: func(i *installation) { i.write(".config/switchboard/.switchboard/store.db-wal", "changes") },
		mend: func(i *installation, f doctor.Diagnosis) {
			wal := i.found(`\((\S+-wal),`, f.Remedy)
			i.do(os.Rename(wal, wal+".old"))
		},
	},
}

var programRows = []broken{
	{
		name: "a server does not answer", cause: "silent", subject: "files", remedy: "by hand",
		breaks: func(i *installation) {
			i.wait = "8s" // also for the server that works, on a busy machine
			i.addServer("files: {command: [files-server]}")
			i.program("files-server", `echo "waiting for a password" >&2`+"\nexec sleep 100")
			i.do(os.Symlink("/bin/sleep", filepath.Join(i.bin, "sleep")))
		},
		mend: func(i *installation, _ doctor.Diagnosis) { i.wait = "60s"; i.program("files-server", "FAKE") },
	},
	{
		name: "npx is not installed", cause: "program-missing", subject: "npx", remedy: "Node.js",
		breaks: func(i *installation) {
			i.addServer("files: {command: [npx, -y, files-server]}")
			i.knownProgram("node", "v22.14.0")
		},
		mend: func(i *installation, _ doctor.Diagnosis) { i.knownProgram("npx", "11.4.2") },
	},
	{
		name: "node is not installed beside npx", cause: "program-missing", subject: "node", remedy: "https://nodejs.org",
		breaks: func(i *installation) {
			i.addServer("files: {command: [npx, -y, files-server]}")
			i.knownProgram("npx", "11.4.2")
		},
		mend: func(i *installation, _ doctor.Diagnosis) { i.knownProgram("node", "v22.14.0") },
	},
	{
		name: "node is too old", cause: "node-too-old", subject: "16.20.2", remedy: "install a newer Node.js",
		breaks: func(i *installation) {
			i.addServer("files: {command: [node, server.js]}")
			i.knownProgram("node", "v16.20.2")
		},
		mend: func(i *installation, _ doctor.Diagnosis) { i.knownProgram("node", "v24.1.0") },
	},
	{
		name: "uvx is not installed", cause: "program-missing", subject: "uvx", remedy: "uv",
		breaks: func(i *installation) { i.addServer("time: {command: [uvx, mcp-server-time]}") },
		mend:   func(i *installation, _ doctor.Diagnosis) { i.knownProgram("uvx", "'uvx 0.8.3'") },
	},
	{
		name: "uvx does not work", cause: "program-broken", subject: "uvx", remedy: "anew",
		breaks: func(i *installation) {
			i.addServer("time: {command: [uvx, mcp-server-time]}")
			i.program("uvx", "echo segmentation fault >&2; exit 139")
		},
		mend: func(i *installation, _ doctor.Diagnosis) { i.knownProgram("uvx", "'uvx 0.8.3'") },
	},
	{
		name: "Docker is not installed", cause: "program-missing", subject: "docker", remedy: "docs.docker.com",
		breaks: func(i *installation) { i.addServer("time: {command: [docker, run, -i, --rm, mcp/time]}") },
		mend:   func(i *installation, _ doctor.Diagnosis) { i.docker(); i.write("docker-runs", "") },
	},
	{
		name: "Docker is not running", cause: "docker-not-running", subject: "docker daemon", remedy: "start Docker",
		breaks: func(i *installation) { i.addServer("time: {command: [docker, run, -i, --rm, mcp/time]}"); i.docker() },
		mend:   func(i *installation, _ doctor.Diagnosis) { i.write("docker-runs", "") },
	},
	{
		name: "a server's own program is not there", cause: "program-missing", subject: "bin/files-server", remedy: "install it there",
		breaks: func(i *installation) {
			i.addServer("files: {command: [" + filepath.Join(i.bin, "files-server") + "]}")
		},
		mend: func(i *installation, _ doctor.Diagnosis) { i.program("files-server", "FAKE") },
	},
	{
		name: "a server's own program may not be run", cause: "program-forbidden", subject: "files-server", remedy: "chmod +x",
		breaks: func(i *installation) {
			i.addServer("files: {command: [" + filepath.Join(i.bin, "files-server") + "]}")
			i.program("files-server", "FAKE")
			i.do(os.Chmod(filepath.Join(i.bin, "files-server"), 0o600))
		},
	},
	{
		name: "the folder of a server is not there", cause: "folder-missing", subject: "work/here", remedy: "mkdir -p",
		breaks: func(i *installation) {
			i.addServer("files: {command: [files-server], dir: " + filepath.Join(i.home, "work/here") + "}")
			i.program("files-server", "FAKE")
		},
	},
}

// docker installs a Docker whose daemon runs if the home has the file docker-runs.
func (i *installation) docker() {
	i.program("docker", `case "$1" in
--version) echo "Docker version 27.5.1, build 9f9e405"; exit;;
esac
[ -e "$HOME/docker-runs" ] || { echo "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?" >&2; exit 1; }
[ "$1" = version ] && { echo 27.5.1; exit; }
FAKE`)
}

// says is a row for a server that writes lines to stderr and ends, as long as a file is not there.
func says(name, cause, remedy, lines string) broken {
	return broken{
		name: name, cause: cause, subject: "files", remedy: remedy,
		breaks: func(i *installation) {
			i.addServer("files" + i.row + ": {command: [files-server" + i.row + "]}")
			i.write("says"+i.row, lines+"\n")
			i.program("files-server"+i.row, `[ -e "$HOME/mended`+i.row+`" ] || { while read -r line; do echo "$line" >&2; done < "$HOME/says`+i.row+`"; exit 1; }`+"\nFAKE")
		},
		mend: func(i *installation, _ doctor.Diagnosis) { i.write("mended"+i.row, "") },
	}
}

var serverRows = []broken{
	says("a module is missing", "module-missing", "npm install", "Error: Cannot find module 'express'\nRequire stack:\n- /srv/server/index.js"),
	says("npm does not know the package", "npm-package-missing", "correct the name", "npm error code E404\nnpm error 404  '@nobody/nothing@*' is not in this registry."),
	says("there is no network", "no-network", "connection to the network", "npm error code EAI_AGAIN\nnpm error network request to https://registry.example/x failed, reason: getaddrinfo EAI_AGAIN registry.example"),
	says("the port of a server is taken", "port-taken", "another port", "Error: listen EADDRINUSE: address already in use :::3000"),
	says("a service refuses a key", "key-refused", "make a new key", "GitHub API error: 401 Unauthorized"),
	says("a server may not read its file", "not-allowed", "chmod", "Error: EACCES: permission denied, open '/srv/notes.json'"),
	says("a server ends for a reason that is not known", "does-not-start", "run its command by hand", "it is Tuesday"),
	{
		name: "a server lacks a key", cause: "key-missing", subject: "files", remedy: `env: {LOOK_API_KEY: "${file:secrets/NAME}"}`,
		breaks: func(i *installation) {
			i.addServer("files" + i.row + ": {command: [files-server" + i.row + "]}")
			i.program("files-server"+i.row, `[ "$LOOK_API_KEY" = a-new-key ] || { echo "Error: LOOK_API_KEY environment variable is required" >&2; exit 1; }`+"\nFAKE")
		},
		mend: func(i *installation, f doctor.Diagnosis) {
			i.write(".config/switchboard/secrets/files", "a-new-key")
			i.edit("[files-server"+i.row+"]", "[files-server"+i.row+"], "+strings.Replace(i.found(`(env: \{.+\})`, f.Remedy), "NAME", "files", 1))
		},
	},
}
