package doctor

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Each sample is what programs print, most from the programs themselves. The lines are the last ones, as package upstream keeps them.
var outputSamples = []struct {
	cause, found string // found is in the claim or the remedy
	output       string
}{
	{"docker-not-running", "", "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?.\nSee 'docker run --help'."},
	{"docker-not-running", "", "failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct and if the daemon is running: dial unix /var/run/docker.sock: connect: no such file or directory"},
	{"docker-not-running", "", "error during connect: this error may indicate that the docker daemon is not running: Get \"http://%2F%2F.%2Fpipe%2Fdocker_engine/_ping\": open //./pipe/docker_engine: The system cannot find the file specified."},
	{"docker-not-allowed", "group docker", "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get \"http://%2Fvar%2Frun%2Fdocker.sock/_ping\": dial unix /var/run/docker.sock: connect: permission denied"},
	{"docker-image-missing", "", "Unable to find image 'mcp/nothing:latest' locally\ndocker: Error response from daemon: pull access denied for mcp/nothing, repository does not exist or may require 'docker login': denied: requested access to the resource is denied"},
	{"docker-image-missing", "", "docker: Error response from daemon: manifest for mcp/time:v99 not found: manifest unknown: manifest unknown."},
	{"npm-package-missing", "", "npm error code E404\nnpm error 404 Not Found - GET https://registry.example/@nobody%2fnothing - Not found\nnpm error 404\nnpm error 404  '@nobody/nothing@*' is not in this registry."},
	{"npm-package-missing", "", "npm ERR! code E404\nnpm ERR! 404 Not Found - GET https://registry.example/nothing-here - Not found"},
	{"npm-version-missing", "", "npm error code ETARGET\nnpm error notarget No matching version found for @modelcontextprotocol/server-filesystem@99.0.0."},
	{"npm-login", "", "npm error code E401\nnpm error Unable to authenticate, your authentication token seems to be invalid."},
	{"npm-no-program", "--package", "npm error could not determine executable to run"},
	{"npm-cache-damaged", "cache", "npm error code ENOTEMPTY\nnpm error syscall rename\nnpm error path /home/ann/.npm/_npx/a3241bba59c344f5/node_modules/zod"},
	{"npm-cache-owner", "chown", "npm error code EACCES\nnpm error syscall open\nnpm error path /home/ann/.npm/_cacache/index-v5/8f\nnpm error Your cache folder contains root-owned files, due to a bug in previous versions of npm"},
	{"node-too-old", "Node.js", "npm WARN EBADENGINE Unsupported engine {\nnpm WARN EBADENGINE   package: '@modelcontextprotocol/sdk@1.26.0',\nnpm WARN EBADENGINE   required: { node: '>=18' },\nnpm WARN EBADENGINE   current: { node: 'v16.20.2', npm: '8.19.4' }\nnpm WARN EBADENGINE }"},
	{"node-too-old", "Node.js", "/home/ann/server/dist/index.js:12\n  this.value ??= 1;\n             ^^^\n\nSyntaxError: Unexpected token '??='\n    at wrapSafe (internal/modules/cjs/loader.js:915:16)"},
	{"node-too-old", "Node.js", "ReferenceError: fetch is not defined\n    at file:///home/ann/server/index.js:3:1"},
	{"node-too-old", "Node.js", "ReferenceError: ReadableStream is not defined\n    at Object.<anonymous> (/x/node_modules/undici/lib/fetch/response.js:527:3)"},
	{"python-too-old", "uv python install", "error: Because the current Python version (3.9.2) does not satisfy Python>=3.10 and mcp-server-time==2025.1 depends on Python>=3.10, we can conclude that mcp-server-time==2025.1 cannot be used."},
	{"python-too-old", "", "error: No interpreter found for Python 3.13 in managed installations or search path"},
	{"python-package-missing", "", "  × No solution found when resolving tool dependencies:\n  ╰─▶ Because mcp-server-nothing was not found in the package registry and you require mcp-server-nothing, we can conclude that your requirements are unsatisfiable."},
	{"python-no-program", "--from", "An executable named `mcp-server` is not provided by package `mcp`.\nThe following executables are available:\n- mcp"},
	{"browser-missing", "playwright install", "Error: browserType.launch: Executable doesn't exist at /home/ann/.cache/ms-playwright/chromium-1148/chrome-linux/chrome"},
	{"module-missing", "express", "node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\nError: Cannot find module 'express'\nRequire stack:\n- /home/ann/server/index.js\n    at Module._resolveFilename (node:internal/modules/cjs/loader:1225:15)"},
	{"module-missing", "/home/ann/server/dist/index.js", "Error: Cannot find module '/home/ann/server/dist/index.js'\n    at Module._resolveFilename (node:internal/modules/cjs/loader:1225:15) {\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}"},
	{"module-missing", "zod", "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /home/ann/server/index.mjs"},
	{"module-missing", "mcp", "Traceback (most recent call last):\n  File \"/home/ann/server.py\", line 1, in <module>\n    from mcp.server.fastmcp import FastMCP\nModuleNotFoundError: No module named 'mcp'"},
	{"module-missing", "mcp_server_time", "/usr/bin/python3: No module named mcp_server_time"},
	{"library-missing", "libssl.so.1.1", "./server: error while loading shared libraries: libssl.so.1.1: cannot open shared object file: No such file or directory"},
	{"library-missing", "GLIBC_2.38", "./server: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by ./server)"},
	{"wrong-processor", "", "bash: line 1: ./server: cannot execute binary file: Exec format error"},
	{"program-missing", "uvx", "sh: 1: exec: uvx: not found"},
	{"program-missing", "node", "env: ‘node’: No such file or directory"},
	{"program-missing", "node", "/usr/bin/env: 'node': No such file or directory"},
	{"program-missing", "uvx", "bash: line 1: uvx: command not found"},
	{"program-missing", "git", "Error: spawn git ENOENT\n    at ChildProcess._handle.onexit (node:internal/child_process:286:19)"},
	{"program-missing", "kubectl", `2026/11/25 10:00:00 exec: "kubectl": executable file not found in $PATH`},
	{"port-taken", "port", "Error: listen EADDRINUSE: address already in use :::3000\n    at Server.setupListenHandle [as _listen2] (node:net:1908:16)"},
	{"port-taken", "", "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use"},
	{"port-taken", "", "listen tcp 127.0.0.1:8080: bind: address already in use"},
	{"no-network", "network", "npm error code ENOTFOUND\nnpm error syscall getaddrinfo\nnpm error errno ENOTFOUND\nnpm error network request to https://registry.example/mcp failed, reason: getaddrinfo ENOTFOUND registry.example"},
	{"no-network", "", "npm error code EAI_AGAIN\nnpm error errno EAI_AGAIN"},
	{"no-network", "", "error: Failed to fetch: `https://pypi.example/simple/mcp/`\n  Caused by: dns error\n  Caused by: failed to lookup address information: Temporary failure in name resolution"},
	{"no-network", "", "socket.gaierror: [Errno -2] Name or service not known"},
	{"no-network", "", "fatal: unable to access 'https://git.example/x/': Could not resolve host: git.example"},
	{"certificate-not-trusted", "NODE_EXTRA_CA_CERTS", "npm error code SELF_SIGNED_CERT_IN_CHAIN\nnpm error request to https://registry.example/x failed, reason: self-signed certificate in certificate chain"},
	{"certificate-not-trusted", "", "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate (_ssl.c:1000)"},
	{"certificate-expired", "clock", "npm error code CERT_HAS_EXPIRED"},
	{"key-missing", "GITHUB_PERSONAL_ACCESS_TOKEN", "Error: GITHUB_PERSONAL_ACCESS_TOKEN environment variable is not set"},
	{"key-missing", "BRAVE_API_KEY", "Error: BRAVE_API_KEY environment variable is required"},
	{"key-missing", "SLACK_BOT_TOKEN", "Please set SLACK_BOT_TOKEN and SLACK_TEAM_ID environment variables\nMissing required environment variable: SLACK_BOT_TOKEN"},
	{"key-missing", "", "Error: API key is required. Pass it with --api-key."},
	{"key-refused", "new key", "GitHub API error: 401 Unauthorized {\"message\":\"Bad credentials\"}"},
	{"key-refused", "", "AuthenticationError: Incorrect API key provided: sk-***"},
	{"key-refused", "", "psycopg.OperationalError: connection failed: FATAL:  password authentication failed for user \"ann\""},
	{"key-refused", "", "Request failed with status code 401"},
	{"key-too-weak", "rights", "Error: Request failed: 403 Forbidden: Resource not accessible by personal access token"},
	{"limited", "wait", "HTTP 429 Too Many Requests"},
	{"service-refused", "127.0.0.1:5432", "Error: connect ECONNREFUSED 127.0.0.1:5432\n    at TCPConnectWrap.afterConnect"},
	{"service-refused", "", "redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused."},
	{"network-slow", "proxy", "npm error code ETIMEDOUT"},
	{"watchers-exhausted", "sysctl", "Error: ENOSPC: System limit for number of file watchers reached, watch '/home/ann/code'"},
	{"disk-full", "df -h", "npm error code ENOSPC\nnpm error nospc ENOSPC: no space left on device, write"},
	{"memory-exhausted", "", "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory"},
	{"files-exhausted", "ulimit", "Error: EMFILE: too many open files, open '/home/ann/notes/1.md'"},
	{"database-locked", "other copy", "sqlite3.OperationalError: database is locked"},
	{"read-only", "", "OSError: [Errno 30] Read-only file system: '/app/cache'"},
	{"not-allowed", "/srv/secret", "Error: EACCES: permission denied, open '/srv/secret'"},
	{"not-allowed", "/var/log/mcp.log", "PermissionError: [Errno 13] Permission denied: '/var/log/mcp.log'"},
	{"file-missing", "/home/ann/server.py", "python3: can't open file '/home/ann/server.py': [Errno 2] No such file or directory"},
	{"file-missing", "/home/ann/config.json", "Error: ENOENT: no such file or directory, open '/home/ann/config.json'"},
	{"file-missing", "/home/ann/nothing", "Error accessing directory /home/ann/nothing: Error: ENOENT"},
	{"usage", "arguments", "usage: mcp-server-git [-h] [--repository REPOSITORY]\nmcp-server-git: error: unrecognized arguments: --repo"},
	{"usage", "", "Error: unknown flag: --stdoi"},
	{"broken-script", "npm run build", "  File \"/home/ann/server.py\", line 3\n    def x(:\n          ^\nSyntaxError: invalid syntax"},
}

func TestTheOutputOfAServerIsExplained(t *testing.T) {
	covered := map[string]bool{}
	for _, s := range outputSamples {
		m, ok := ExplainOutput(strings.Split(s.output, "\n"))
		if !ok || m.Cause != s.cause {
			t.Errorf("%q is explained with %q, want %q", s.output, m.Cause, s.cause)
			continue
		}
		covered[m.Cause] = true
		if text := m.Claim + m.Remedy + m.Command; !strings.Contains(text, s.found) || strings.Contains(text, "$1") {
			t.Errorf("%q is explained with %+v, without %q", s.output, m, s.found)
		}
	}
	for _, r := range outputMeanings {
		if !covered[r.cause] {
			t.Errorf("there is no sample for %s", r.cause)
		}
	}
}

func TestTheErrorOfAConnectionIsExplained(t *testing.T) {
	covered := map[string]bool{}
	for text, cause := range map[string]string{
		"no connection: dial tcp: lookup mcp.example.invalid: no such host":                                                                                          "name-not-found",
		"no connection: dial tcp: lookup mcp.example.com on 127.0.0.53:53: read udp: i/o timeout":                                                                    "name-not-found",
		"no connection: dial tcp 127.0.0.1:9: connect: connection refused":                                                                                           "refused",
		"no connection: dial tcp 10.1.2.3:443: i/o timeout":                                                                                                          "unreachable",
		"no connection: dial tcp 10.1.2.3:443: connect: no route to host":                                                                                            "unreachable",
		"no connection: tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-11-25 is after 2020-01-01T00:00:00Z": "certificate-expired",
		"no connection: tls: failed to verify certificate: x509: certificate signed by unknown authority":                                                            "certificate-not-trusted",
		"no connection: tls: failed to verify certificate: x509: certificate is valid for other.example, not localhost":                                              "certificate-wrong-name",
		"no connection: tls: failed to verify certificate: x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs":                   "certificate-wrong-name",
		"no connection: tls: first record does not look like a TLS handshake":                                                                                        "not-tls",
		"no connection: its proxy 10.0.0.1:3128 opened no connection to it: it answered CONNECT with HTTP status 403 Forbidden":                                      "proxy",
		"no connection: its proxy 10.0.0.1:3128 cannot be reached: dial tcp 10.0.0.1:3128: connect: connection refused":                                              "proxy",
		"the connection broke: remote error: tls: certificate required":                                                                                              "client-certificate",
		"the connection broke: remote error: tls: unknown certificate authority":                                                                                     "client-certificate",
		"no connection: remote error: tls: handshake failure":                                                                                                        "tls",
		"it answered with HTTP status 401 Unauthorized: check the credentials in its headers":                                                                        "key-refused",
		"it answered with HTTP status 403 Forbidden: check the credentials in its headers":                                                                           "key-too-weak",
		"it answered with HTTP status 404 Not Found":                                                                                                                 "not-mcp",
		"it answered with HTTP status 308 Permanent Redirect: redirects are not followed; configure the address that it names":                                       "moved",
		"it answered with HTTP status 502 Bad Gateway":                                                                                                               "server-failed",
	} {
		m, ok := ExplainConnection(text)
		if !ok || m.Cause != cause {
			t.Errorf("%q is explained with %q, want %q", text, m.Cause, cause)
		}
		covered[m.Cause] = true
	}
	for _, r := range connectionMeanings {
		if !covered[r.cause] {
			t.Errorf("there is no sample for %s", r.cause)
		}
	}
}

func TestWhatAServerSaysWhenItWorksHasNoMeaning(t *testing.T) {
	for _, line := range []string{
		"Secure MCP Filesystem Server running on stdio",
		"Client does not support MCP Roots, using allowed directories set from server args: [ '/home/ann' ]",
		"GitHub MCP Server running on stdio",
		"INFO:     Started server process [4242]",
		"npm warn deprecated inflight@1.0.6: This module is not supported, and leaks memory.",
		"Downloading cpython-3.13.0-linux-x86_64-gnu (download) (18.2MiB)",
		"Installed 32 packages in 41ms",
		"[2026-11-25 10:00:00] listening on port 3000, 401 documents indexed",
		"a token budget of 4000 is used",
		"",
	} {
		if m, ok := ExplainOutput([]string{line}); ok {
			t.Errorf("%q is explained with %s", line, m.Cause)
		}
	}
}

// The text of a server must not become a command that people copy.
func TestACommandHoldsNothingThatAServerHasSaid(t *testing.T) {
	for _, r := range append(outputMeanings, connectionMeanings...) {
		if strings.Contains(r.command, "$1") {
			t.Errorf("the command of %s holds what the server has said", r.cause)
		}
		if r.cause == "" || r.claim == "" || r.remedy == "" {
			t.Errorf("the row %+v is not complete", r)
		}
	}
}

// RX-06: a server may write anything.
func FuzzAnyOutputIsExplainedInTime(f *testing.F) {
	for _, s := range outputSamples {
		f.Add(s.output)
	}
	f.Fuzz(func(t *testing.T, output string) {
		began := time.Now()
		m, ok := ExplainOutput(strings.Split(output, "\n"))
		if ok && (m.Cause == "" || m.Remedy == "") || utf8.ValidString(output) && !utf8.ValidString(m.Claim+m.Remedy) {
			t.Errorf("%q is explained with %+v", output, m)
		}
		if took := time.Since(began); took > 20*time.Second { // expressions take linear time; a slow machine too
			t.Errorf("%q took %s", output, took)
		}
	})
}
