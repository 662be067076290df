package wall

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// homeSecrets are the files and folders of a user's home that hold secrets: keys, tokens, profiles of browsers, and files of clients with the keys
// of other servers.
var homeSecrets = []string{
	".ssh", ".gnupg", ".pki", ".putty", ".password-store", ".age", ".config/age", ".config/sops",
	".aws", ".azure", ".config/gcloud", ".oci", ".kube", ".docker", ".config/containers", ".config/doctl", ".config/hcloud", ".fly", ".config/heroku",
	".vault-token", ".terraform.d/credentials.tfrc.json", ".terraformrc", ".config/op", ".config/Bitwarden", ".config/Bitwarden CLI", ".config/1Password", ".config/keepassxc",
	".netrc", "_netrc", ".git-credentials", ".config/git/credentials", ".config/gh", ".config/glab-cli", ".config/hub",
	".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".config/pip", ".pip", ".config/uv", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".composer/auth.json", ".m2/settings.xml", ".gradle/gradle.properties", ".nuget/NuGet",
	".pgpass", ".my.cnf", ".mylogin.cnf", ".s3cfg", ".boto", ".rclone.conf", ".config/rclone", ".config/sshfs", ".smbcredentials",
	".local/share/keyrings", ".local/share/kwalletd", ".config/libaccounts-glib", ".gnome2/keyrings",
	".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi", ".config/opera", ".var/app",
	".cache/mozilla", ".cache/google-chrome", ".cache/chromium", ".cache/BraveSoftware", ".cache/microsoft-edge", ".cache/vivaldi", ".cache/opera", "snap",
	".bitcoin", ".ethereum", ".electrum", ".config/solana", ".config/Signal", ".config/Slack", ".config/discord",
	".bash_history", ".zsh_history", ".sh_history", ".local/share/fish/fish_history", ".python_history", ".node_repl_history", ".psql_history", ".mysql_history", ".sqlite_history", ".rediscli_history",
	".claude.json", ".claude", ".mcp-auth", ".codex", ".gemini", ".cursor", ".codeium", ".continue", ".copilot", ".config/github-copilot", ".config/Claude", ".config/goose", ".config/opencode", ".local/share/opencode", ".config/zed", ".lmstudio", ".aider.conf.yml",
	".config/Code/User", ".config/Code - Insiders/User", ".config/VSCodium/User", ".config/Cursor/User", ".config/Windsurf/User", ".vscode/mcp.json",
	".config/switchboard", ".switchboard",
}

// rootSecrets are what only root can read anyway, and root's programs must not.
var rootSecrets = []string{"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssh", "/etc/sudoers", "/etc/sudoers.d", "/var/lib/docker", "/etc/kubernetes", "/var/lib/kubelet"}

// caches are where package managers keep what they have fetched, in the home.
var caches = []string{
	".npm", ".cache", ".local/share/uv", ".local/share/pnpm", ".local/share/pipx", ".local/share/virtualenv", ".local/state/uv", ".cargo/registry", ".cargo/git", ".rustup",
	"go/pkg", ".yarn", ".bun", ".deno", ".pnpm-store", ".node-gyp", ".nuget/packages", ".m2/repository", ".gradle/caches", ".dotnet",
}

// A needs value says what a program uses of the home at the level standard.
type needs struct {
	makes []string // folders that it makes when it is used for the first time, and changes
	sees  []string // of homeSecrets: its own settings
}

// launchers are programs that fetch other programs and start them.
var launchers = map[string]needs{
	"npx": nodeLauncher, "npm": nodeLauncher, "pnpm": pnpmLauncher, "pnpx": pnpmLauncher, "yarn": {[]string{".cache/node", ".cache/yarn", ".yarn"}, nodeSettings},
	"bun": bunLauncher, "bunx": bunLauncher,
	"uv": pythonLauncher, "uvx": pythonLauncher, "pipx": pythonLauncher, "pip": pythonLauncher,
	"deno": {[]string{".cache/deno"}, nil}, "go": {[]string{".cache/go-build", "go/pkg"}, nil}, "cargo": {[]string{".cargo/registry", ".cargo/git"}, nil},
	"docker": containerLauncher, "podman": containerLauncher, "nerdctl": containerLauncher,
}

var (
	nodeSettings      = []string{".npmrc", ".yarnrc", ".yarnrc.yml"}
	nodeLauncher      = needs{[]string{".npm", ".cache/node"}, nodeSettings}
	pnpmLauncher      = needs{[]string{".cache/node", ".cache/pnpm", ".local/share/pnpm", ".local/state/pnpm"}, nodeSettings}
	bunLauncher       = needs{[]string{".bun"}, []string{".npmrc"}}
	pythonLauncher    = needs{[]string{".cache/uv", ".cache/pip", ".cache/pipx", ".local/share/uv", ".local/share/pipx", ".local/state/pipx"}, []string{".config/uv", ".config/pip", ".pip"}}
	containerLauncher = needs{nil, []string{".docker", ".config/containers"}}
)

// packages have programs that keep something in the home, by the name of the package.
var packages = map[string]needs{
	"mcp-remote":                             {[]string{".mcp-auth"}, []string{".mcp-auth"}},
	"@playwright/mcp":                        {[]string{".cache/ms-playwright"}, nil},
	"chrome-devtools-mcp":                    {[]string{".cache/chrome-devtools-mcp"}, nil},
	"@modelcontextprotocol/server-puppeteer": {[]string{".cache/puppeteer"}, nil},
}

// launcherWords are words by which a launcher is told to start a package.
var launcherWords = map[string][]string{
	"npm": {"exec", "x"}, "pnpm": {"dlx", "exec"}, "yarn": {"dlx", "exec"}, "bun": {"x", "run"}, "pipx": {"run"}, "uv": {"tool", "run"},
}

// needsOf returns what the program of a server uses of the home: as a launcher, and as the package that it is or that the launcher starts.
func needsOf(program string, s *switchboard.Server) needs {
	launcher := strings.TrimSuffix(filepath.Base(program), ".exe")
	all, launches := launchers[launcher]
	name := s.Package.Name
	if launches && name == "" {
		for _, word := range s.Command[min(1, len(s.Command)):] {
			if strings.HasPrefix(word, "-") || slices.Contains(launcherWords[launcher], word) {
				continue
			}
			name = word
			if at := strings.LastIndex(word, "@"); at > 0 && !strings.Contains(word[at:], ":") { // NAME@VERSION; NAME@npm:OTHER is another package
				name = word[:at]
			}
			break
		}
	}
	own := packages[name]
	return needs{slices.Concat(all.makes, own.makes), slices.Concat(all.sees, own.sees)}
}

// systemPlaces are what the programs and libraries of the system read, at the level strict.
var systemPlaces = []string{
	"/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/proc", "/sys/devices/system/cpu", "/sys/fs/cgroup", "/nix/store", "/gnu/store",
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path", "/etc/alternatives", "/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group",
	"/etc/hosts", "/etc/host.conf", "/etc/resolv.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols", "/run/systemd/resolve", "/etc/ssl", "/etc/pki/tls", "/etc/pki/ca-trust", "/etc/ca-certificates", "/etc/mime.types", "/etc/os-release", "/etc/debian_version", "/etc/fonts",
}

// loaders are what the kernel executes to load the libraries of a program.
var loaders = []string{
	"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-linux.so.2", "/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1",
}

// systemFolders are never made writable because a path in them is named.
var systemFolders = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr"}

// userFolders are folders in them where users keep files.
var userFolders = []string{"/dev/shm", "/run/shm", "/run/user", "/usr/local/src"}

// wideFolders are not made writable because a file in them is named.
var wideFolders = []string{"/", "/home", "/root", "/opt", "/srv", "/mnt", "/media", "/var", "/var/lib", "/data"}

// The devices that a program may use.
var (
	strictDevices   = []string{"null", "zero", "full", "random", "urandom"}
	standardDevices = append([]string{
		"tty", "ptmx", "pts", "log", "dri", "snd", "nvidia*", "kfd", "video*", "kvm", "fuse", "hidraw*", "ttyUSB*", "ttyACM*", "bus", "input", "i2c-*", "net",
	}, strictDevices...)
)
