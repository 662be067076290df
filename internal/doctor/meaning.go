package doctor

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A Meaning explains what a server's last output, or the failure of its connection, means for the person who configured it.
type Meaning struct {
	Cause  string // a word that never changes
	Claim  string // what is the matter
	Remedy string

	// Command carries the remedy out, or is "".
	Command string
}

// A meaningRow explains the lines that match. In remedy and command, $1 is what the first group of the expression has matched.
type meaningRow struct {
	cause   string
	line    string // a regular expression, for one line
	claim   string
	remedy  string
	command string
}

// outputMeanings explain what programs write to their stderr. The first row that matches any line counts, so rows for special cases come first:
// programs repeat a cause in general words.
var outputMeanings = []meaningRow{
	// Docker.
	{
		cause: "docker-not-allowed", line: `(?i)permission denied while trying to connect to the docker (?:daemon socket|api)`,
		claim:  "its user may not use Docker",
		remedy: "add the user of Switchboard to the group docker, and log in again", command: "sudo usermod -aG docker $USER",
	},
	{
		cause: "docker-not-running", line: `(?i)cannot connect to the docker daemon|is the docker daemon running|failed to connect to the docker api|error during connect: .*docker|dockerDesktopLinuxEngine|docker desktop is (?:unable to start|not running)`,
		claim:  "Docker is not running",
		remedy: "start Docker (Docker Desktop, or on Linux: sudo systemctl start docker)",
	},
	{
		cause: "docker-image-missing", line: `(?i)(?:pull access denied for|manifest for|repository) ([\w./:@-]+?)(?:,|:? not found| does not exist)|(?:manifest unknown)`,
		claim:  "there is no such image, or the registry wants a login",
		remedy: `correct the name of the image in the server's "command", or log in: docker login`,
	},
	// Packages of npm.
	{
		cause: "npm-package-missing", line: `npm (?:error|ERR!) (?:code )?(?:E)?404\b.*?(?:'(.+?)(?:@[^'@]*)?' is not in|$)|' is not in (?:this|the npm) registry`,
		claim:  "npm knows no package of that name",
		remedy: `correct the name of the package in the server's "command"; if the package is private: npm login`,
	},
	{
		cause: "npm-version-missing", line: `npm (?:error|ERR!) (?:code ETARGET|notarget No matching version found for (\S+?)\.?$)`,
		claim:  "npm has no such version of the package",
		remedy: `correct the version behind the @ in the server's "command", or leave it out`,
	},
	{
		cause: "npm-login", line: `npm (?:error|ERR!) code (?:E401|E403|ENEEDAUTH)`,
		claim:  "the registry of npm wants a login",
		remedy: "log in: npm login; or correct the token in ~/.npmrc",
	},
	{
		cause: "npm-no-program", line: `npm (?:error|ERR!) could not determine executable to run`,
		claim:  "the package has no program that npx could run",
		remedy: `name the program in the server's "command": [npx, -y, --package=PACKAGE, PROGRAM]; the documents of the package name it`,
	},
	{
		cause: "npm-cache-damaged", line: `npm (?:error|ERR!) code (?:ENOTEMPTY|EEXIST|EINTEGRITY|Z_DATA_ERROR)|npm (?:error|ERR!) .*Invalid response body while trying to fetch`,
		claim:  "what npm had downloaded earlier is damaged",
		remedy: "empty the cache of npm", command: "npm cache clean --force && rm -rf ~/.npm/_npx",
	},
	{
		cause: "npm-cache-owner", line: `npm (?:error|ERR!) (?:code EACCES|Your cache folder contains root-owned files)`,
		claim:  "the cache of npm belongs to another user",
		remedy: "take the folder back", command: "sudo chown -R $(id -u):$(id -g) ~/.npm",
	},
	// Versions of interpreters.
	{
		cause: "node-too-old", line: `npm (?:error|ERR!) code EBADENGINE|Unsupported engine|requires Node(?:\.js)?(?: version)? ?(?:>=|v?\d)|(?i:node(?:\.js)? version .*(?:not supported|is required|too old))|ReferenceError: (?:fetch|File|ReadableStream|Headers|FormData|WebSocket) is not defined|SyntaxError: Unexpected token '(?:\?\?=|\|\|=|\?\.|\?|\.|with)'|SyntaxError: The requested module 'node:|ERR_UNKNOWN_BUILTIN_MODULE|No such built-in module: node:|crypto is not defined`,
		claim:  "it needs a newer Node.js",
		remedy: "install a newer Node.js (the newest LTS), and make sure that it comes first in the PATH; then node --version shows it",
	},
	{
		cause: "python-too-old", line: `(?i)requires-python|requires a different python|because the current python version|requires python ?[><=~]|No interpreter found for Python ([\d.]+)`,
		claim:  "it needs another version of Python",
		remedy: `let uv install it: add --python 3.13 behind uvx in the server's "command", or run: uv python install 3.13`, command: "uv python install 3.13",
	},
	{
		cause: "python-package-missing", line: `Because (\S+) was not found in the package registry|No matching distribution found for (\S+)|Could not find a version that satisfies the requirement (\S+)`,
		claim:  "there is no Python package of that name",
		remedy: `correct the name of the package in the server's "command"`,
	},
	{
		cause: "python-no-program", line: `An executable named ` + "`?" + `([^` + "`" + `\s]+)` + "`?" + ` is not provided by package|executables? (?:are|is) (?:provided|available)`,
		claim:  "the package has no program of that name",
		remedy: `write [uvx, --from, PACKAGE, PROGRAM] into the server's "command"; the lines below name the programs`,
	},
	// Parts that are missing.
	{
		cause: "browser-missing", line: `(?i)Executable doesn't exist at .*|npx playwright install|chromium distribution '\w+' is not found|Could not find Chrom(?:e|ium)`,
		claim:  "the browser that it drives is not installed",
		remedy: "install it", command: "npx playwright install chromium",
	},
	{
		cause: "module-missing", line: `(?:ERR_MODULE_NOT_FOUND\]: )?Cannot find (?:module|package) '([^']+)'|ERR_MODULE_NOT_FOUND`,
		claim:  "a module of Node.js is missing: $1",
		remedy: `install what the server needs, in its folder: npm install; if the server is a file that is built, build it: npm run build`,
	},
	{
		cause: "module-missing", line: `(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)'?|No module named ([\w.]+)$`,
		claim:  "a module of Python is missing: $1",
		remedy: `install it for the Python in the server's "command" (python3 -m pip install …), or start the server with uvx or uv run, which installs what it needs`,
	},
	{
		cause: "library-missing", line: `error while loading shared libraries: (\S+?):|version ` + "`" + `(GLIBC\w*_[\d.]+)' not found|Library not loaded: (\S+)`,
		claim:  "a library of the system is missing: $1",
		remedy: "install the package of your system that has it, or a build of the server for your system",
	},
	{
		cause: "wrong-processor", line: `(?i)exec format error|bad CPU type in executable|is not a valid win32 application`,
		claim:  "its program was built for another processor or system",
		remedy: "install the build for this machine; a script needs a first line such as #!/usr/bin/env node",
	},
	{
		cause: "program-missing", line: `exec: "?([^":]+)"?: executable file not found|spawn (\S+) ENOENT|(?:sh|bash|zsh|dash): (?:line )?\d+: (?:exec: )?([^:]+): (?:command )?not found|^(?:\S*/|\S+: )?env: [‘'"]?([^’'":]+)[’'"]?: No such file or directory|'([^']+)' is not recognized as an internal or external command|command not found: (\S+)`,
		claim:  "a program that it needs was not found: $1",
		remedy: "install $1, or add its folder to the PATH with which Switchboard is started",
	},
	// Network. What a program says about a port comes before that.
	{
		cause: "port-taken", line: `(?i)EADDRINUSE(?:.*?[: ](\d{2,5})\b)?|address already in use(?:.*?[: ](\d{2,5})\b)?|Only one usage of each socket address|port (\d{2,5}) is (?:already )?(?:in use|taken|allocated)`,
		claim:  "another program has the port that it wants to listen at",
		remedy: "end the other program (it may be a copy of the server that was left behind), or give the server another port",
	},
	{
		cause: "no-network", line: `(?i)ENOTFOUND (\S+)|EAI_AGAIN|getaddrinfo (?:\w+ )?(\S+)|Temporary failure in name resolution|Name or service not known|nodename nor servname|Could not resolve host:? ?(\S*)|no such host|dns error|ENETUNREACH|Network is unreachable|failed to lookup address`,
		claim:  "it cannot reach the network: a name was not found",
		remedy: "check the connection to the network, and the proxy if there is one (HTTPS_PROXY in the server's env); then run doctor again",
	},
	{
		cause: "certificate-not-trusted", line: `(?i)SELF_SIGNED_CERT_IN_CHAIN|self[- ]signed certificate|UNABLE_TO_(?:GET_ISSUER_CERT|VERIFY_LEAF_SIGNATURE)|unable to get (?:local )?issuer certificate|CERTIFICATE_VERIFY_FAILED|certificate signed by unknown authority|invalid peer certificate`,
		claim:  "it does not trust the certificate of a site: often that of a proxy which reads the traffic",
		remedy: "name the file with the certificate of your proxy or company in the server's env: NODE_EXTRA_CA_CERTS for Node.js, SSL_CERT_FILE for uv and Python",
	},
	{
		cause: "certificate-expired", line: `(?i)CERT_HAS_EXPIRED|certificate has expired`,
		claim:  "the certificate of a site has expired, or the clock of this machine is wrong",
		remedy: "compare the clock with the right time (date); if it is right, the owner of the site must renew the certificate",
	},
	// Keys.
	{
		cause: "key-missing", line: `(?i)\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b[^.]{0,60}\b(?:is|was|are|not|must be|environment variable)\b.{0,40}?(?:required|missing|not set|unset|not (?:found|defined|provided)|be set)|(?:missing|required|set|provide|need)\b.{0,60}\benvironment variable:?s?:? "?([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)|(?:missing|no|provide an?|requires? an?|need an?) (?:api[ -]?key|access token|token)\b|(?:api[ -]?key|access token) (?:is )?(?:required|missing|not (?:set|found|provided))`,
		claim:  "a key or setting is missing: $1",
		remedy: `write the key into a file for you alone, and name it in the server's row: env: {$1: "$${file:secrets/NAME}"}`,
	},
	{
		cause: "key-refused", line: `(?i)\b401\b.{0,40}unauthori[sz]ed|unauthori[sz]ed.{0,40}\b401\b|status(?: code)?:? 401\b|bad credentials|(?:invalid|incorrect|expired|revoked|wrong|unknown)[ _](?:api[ _-]?key|(?:access |auth |bearer )?token|credentials|password)|(?:api[ _-]?key|token) (?:is |was |has )?(?:been )?(?:invalid|incorrect|expired|revoked)|authentication (?:failed|error)|password authentication failed|invalid_auth|access denied for user|\bUnauthorized$`,
		claim:  "the service behind it refuses its key",
		remedy: `make a new key there, and replace the one in the server's row (its "env", or the file that it names)`,
	},
	{
		cause: "key-too-weak", line: `(?i)\b403\b.{0,40}forbidden|status(?: code)?:? 403\b|insufficient[ _](?:scope|permission)|resource not accessible by`,
		claim:  "the service behind it knows its key, and does not allow what the server asks for",
		remedy: "give the key the rights that the server's documents name, or use another key",
	},
	{
		cause: "limited", line: `(?i)\b429\b.{0,40}too many requests|rate limit (?:exceeded|reached)|status(?: code)?:? 429\b|quota (?:exceeded|exhausted)`,
		claim:  "the service behind it takes no more requests for now",
		remedy: "wait, or raise the limit at the service",
	},
	{
		cause: "service-refused", line: `(?i)ECONNREFUSED(?: (\S+))?|connection refused|ConnectionRefusedError|actively refused it|could not connect to server`,
		claim:  "a program or service that it needs does not answer: $1",
		remedy: "start that program (a database, for example), or correct its address in the server's env or command",
	},
	{
		cause: "network-slow", line: `(?i)ETIMEDOUT|ESOCKETTIMEDOUT|i/o timeout|connection timed out|ReadTimeout|ConnectTimeout`,
		claim:  "a service that it needs does not answer in time",
		remedy: "check the connection to the network and the proxy; then run doctor again",
	},
	// The machine.
	{
		cause: "watchers-exhausted", line: `System limit for number of file watchers reached|inotify.*(?:limit|No space left)`,
		claim:  "the system has no file watchers left",
		remedy: "raise the limit", command: "sudo sysctl fs.inotify.max_user_watches=524288",
	},
	{
		cause: "disk-full", line: `ENOSPC|(?i:no space left on device|disk (?:is )?full|database or disk is full)`,
		claim:  "the disk is full",
		remedy: "make room on the disk (df -h shows which one it is); then run doctor again",
	},
	{
		cause: "memory-exhausted", line: `(?i)JavaScript heap out of memory|Cannot allocate memory|ENOMEM|^MemoryError|out of memory`,
		claim:  "there is not enough memory for it",
		remedy: "end other programs, or give it more: NODE_OPTIONS=--max-old-space-size=4096 with allow_env for a server of Node.js",
	},
	{
		cause: "files-exhausted", line: `EMFILE|(?i:too many open files)`,
		claim:  "it may not open more files",
		remedy: "raise the limit in the shell or unit that starts Switchboard", command: "ulimit -n 65536",
	},
	{
		cause: "database-locked", line: `(?i)database is locked|SQLITE_BUSY|lock file .* (?:exists|is held)|another instance is (?:already )?running|could not (?:obtain|acquire) (?:the )?lock`,
		claim:  "another copy of it runs and holds its data",
		remedy: "end the other copy: it may run in a client that starts the server itself (switchboard connect moves such servers here)",
	},
	{
		cause: "read-only", line: `EROFS|(?i:read-only file system)`,
		claim:  "it writes to a place that is read-only",
		remedy: `give it a folder that may be written, in the server's "command", "env" or "dir"`,
	},
	{
		cause: "not-allowed", line: `EACCES:? permission denied,? ?\w* ?'?([^']*)'?|PermissionError: .*?'([^']+)'|(?i:permission denied)(?:.*?'([^']+)')?|EPERM|(?i:operation not permitted)`,
		claim:  "it may not use a file or folder: $1",
		remedy: "give the user of Switchboard the right to use it (chmod, chown), or name another one in the server's command",
	},
	{
		cause: "file-missing", line: `ENOENT: no such file or directory, \w+ '([^']+)'|can't open file '([^']+)'|FileNotFoundError: .*?'([^']+)'|(?:Error accessing directory|cannot access) '?([^':]+)'?|(?i:no such file or directory:? ?'?([^']*)'?)`,
		claim:  "a file or folder that it needs is not there: $1",
		remedy: `make it, or correct the path in the server's "command"`,
	},
	{
		cause: "usage", line: `(?i)^usage:|unrecognized arguments?:? ?(.*)|unknown (?:flag|option|argument|command):? ?(.*)|unexpected argument '?([^' ]*)|invalid option|missing required argument`,
		claim:  "it does not understand its arguments",
		remedy: `correct the arguments in the server's "command"; its output below says which it takes`,
	},
	{
		cause: "broken-script", line: `^(?:SyntaxError|IndentationError|TabError):`,
		claim:  "its program is broken: the interpreter cannot read it",
		remedy: `install the server anew; if "command" names a source, name what was built from it (for TypeScript: npm run build)`,
	},
}

// connectionMeanings explain the failures of connections to servers over HTTP.
var connectionMeanings = []meaningRow{
	{
		cause: "proxy", line: `its proxy (\S+) `,
		claim:  "no connection comes about through its proxy $1",
		remedy: `correct "proxy" in the server's row, or HTTPS_PROXY, HTTP_PROXY and NO_PROXY in the environment`,
	},
	{
		cause: "client-certificate", line: `tls: certificate required|remote error: tls: (?:bad|unsupported|revoked|expired|unknown) certificate`,
		claim:  "it does not accept our client certificate, or wants one",
		remedy: `name a certificate that it accepts: tls: {cert: PATH, key: PATH} in the server's row`,
	},
	{
		cause: "name-not-found", line: `lookup (\S+?)(?: on \S+)?: (?:no such host|server misbehaving)`,
		claim:  "the name $1 was not found in DNS",
		remedy: `correct the host in the server's "url", or check the connection to the network`,
	},
	{
		cause: "name-not-found", line: `lookup (\S+?)(?: on \S+)?: `,
		claim:  "DNS does not answer for the name $1",
		remedy: "check the connection to the network and its DNS; then run doctor again",
	},
	{
		cause: "refused", line: `connection refused|actively refused`,
		claim:  "nothing listens at its address",
		remedy: `start the server, or correct host and port in its "url"`,
	},
	{
		cause: "unreachable", line: `network is unreachable|no route to host|i/o timeout|deadline exceeded|connection timed out`,
		claim:  "its address cannot be reached from here",
		remedy: `check the network, the VPN and the firewall between, or correct the server's "url"`,
	},
	{
		cause: "certificate-expired", line: `certificate has expired or is not yet valid`,
		claim:  "its certificate has expired or does not count yet, or the clock of this machine is wrong",
		remedy: "compare the clock with the right time (date); if it is right, the owner of the server must renew the certificate",
	},
	{
		cause: "certificate-wrong-name", line: `certificate is (?:valid for (.+), not (\S+)|not valid for)|cannot validate certificate for (\S+)|not valid for any names`,
		claim:  "its certificate belongs to another name: $1",
		remedy: `write a name of the certificate into the server's "url"`,
	},
	{
		cause: "certificate-not-trusted", line: `certificate signed by unknown authority|failed to verify certificate`,
		claim:  "its certificate is signed by an authority that this machine does not know",
		remedy: "if your network inspects TLS, or the server has an authority of its own, get the authority's certificate and add it to the server's row: tls: {ca: PATH}",
	},
	{
		cause: "not-tls", line: `first record does not look like a TLS handshake|server gave HTTP response to HTTPS client`,
		claim:  "it does not speak TLS at this port",
		remedy: `write http:// into the server's "url", or the port at which it speaks TLS`,
	},
	{
		cause: "tls", line: `tls: |remote error: `,
		claim:  "TLS with it fails",
		remedy: "the server must speak TLS 1.2 or later; its operator must look at its log",
	},
	{
		cause: "key-refused", line: `HTTP status 401\b`,
		claim:  "it refuses the key in its headers, or there is none",
		remedy: `make a new key at the service, and write it into the file that the server's "headers" name; if it wants a sign-in in a browser, "switchboard server connect" says why that is not possible`,
	},
	{
		cause: "key-too-weak", line: `HTTP status 403\b`,
		claim:  "it knows the key in its headers, and does not allow this",
		remedy: "give the key the rights that the service's documents name, or use another key",
	},
	{
		cause: "not-mcp", line: `HTTP status (?:404|405|410)\b`,
		claim:  "there is no MCP server at this path",
		remedy: `correct the path in the server's "url"; it often ends with /mcp or /sse`,
	},
	{
		cause: "moved", line: `HTTP status 30\d`,
		claim:  "it has moved to another address",
		remedy: `write the new address into the server's "url": curl -sI shows it in the line Location`,
	},
	{
		cause: "server-failed", line: `HTTP status 5\d\d`,
		claim:  "it has an error of its own",
		remedy: "the server's operator must look at its log; then run doctor again",
	},
}

// A compiledRow is a meaningRow with its expression.
type compiledRow struct {
	meaningRow
	match *regexp.Regexp
}

// compileRows returns the compiled rows. They are compiled when they are first used, because every start of the program would pay for it.
func compileRows(rows []meaningRow) func() []compiledRow {
	return sync.OnceValue(func() []compiledRow {
		out := make([]compiledRow, len(rows))
		for i, r := range rows {
			out[i] = compiledRow{r, regexp.MustCompile(r.line)}
		}
		return out
	})
}

var (
	outputRows     = compileRows(outputMeanings)
	connectionRows = compileRows(connectionMeanings)
)

// Bounds of the text that is explained. Package upstream keeps less.
const (
	maxExplainedLines = 50
	maxExplainedLine  = 4 << 10
)

// ExplainOutput returns what the last lines of a server's stderr mean; ok is false if that is not known.
func ExplainOutput(lines []string) (m Meaning, ok bool) { return explain(outputRows(), lines) }

// ExplainConnection returns what the error of a connection means; ok is false if that is not known.
func ExplainConnection(text string) (m Meaning, ok bool) {
	return explain(connectionRows(), []string{text})
}

func explain(rows []compiledRow, lines []string) (Meaning, bool) {
	lines = slices.Clone(lines[max(0, len(lines)-maxExplainedLines):])
	for i, line := range lines {
		lines[i] = strings.ToValidUTF8(line[:min(len(line), maxExplainedLine)], "?")
	}
	for _, r := range rows {
		for _, line := range lines {
			if at := r.match.FindStringSubmatch(line); at != nil {
				return r.meaning(firstGroup(at)), true
			}
		}
	}
	return Meaning{}, false
}

// firstGroup returns what the first group has matched that matched anything.
func firstGroup(match []string) string {
	for _, s := range match[1:] {
		if s = strings.TrimRight(strings.TrimSpace(s), ".,;:"); s != "" {
			return s
		}
	}
	return ""
}

// unnamed replaces the texts around $1 if no group has matched.
var unnamed = strings.NewReplacer(": $1", "", "install $1", "install it", "the name $1", "its name", "{$1:", "{NAME:")

// meaning returns the row's meaning, with found in the place of $1, and with $ in the place of $$.
func (r *compiledRow) meaning(found string) Meaning {
	fill := func(text string) string {
		if found == "" {
			text = unnamed.Replace(text)
		}
		return strings.NewReplacer("$1", found, "$$", "$").Replace(text)
	}
	return Meaning{Cause: r.cause, Claim: fill(r.claim), Remedy: fill(r.remedy), Command: r.command}
}
