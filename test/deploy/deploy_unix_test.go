//go:build unix

// Package deploy_test holds the Dockerfile, docker-compose.yml and what they mount
// against what is said of them. No container is started.
package deploy_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/summit-switchboard/switchboard/internal/config"
)

const root = "../.."

// A service is what we claim something of.
type service struct {
	Image       string
	Build       string
	User        string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	Privileged  bool
	CapAdd      []string `yaml:"cap_add"`
	Restart     string
	Ports       []string
	Networks    []string
	Volumes     []string
	StopGrace   string `yaml:"stop_grace_period"`
	Healthcheck struct {
		Test []string
	}
	Deploy struct {
		Resources struct {
			Limits struct {
				CPUs, Memory string
				PIDs         int
			}
		}
	}
}

type compose struct {
	Services map[string]service
	Networks map[string]struct{ Internal bool }
	Volumes  map[string]any
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func composition(t *testing.T) compose {
	t.Helper()
	var c compose
	if err := yaml.Unmarshal([]byte(read(t, "docker-compose.yml")), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEveryServiceIsConfinedLimitedAndLookedAfter(t *testing.T) {
	c := composition(t)
	if len(c.Services) != 5 {
		t.Fatalf("there are %d services", len(c.Services))
	}
	for name, s := range c.Services {
		uid, _, _ := strings.Cut(s.User, ":")
		if n, err := strconv.Atoi(uid); err != nil || n == 0 {
			t.Errorf("%s runs as %q", name, s.User)
		}
		limits := s.Deploy.Resources.Limits
		for what, holds := range map[string]bool{
			"a root file system that is read-only": s.ReadOnly,
			"no capabilities":                      slices.Equal(s.CapDrop, []string{"ALL"}) && s.CapAdd == nil && !s.Privileged,
			"no new privileges":                    slices.Contains(s.SecurityOpt, "no-new-privileges:true"),
			"limits":                               limits.CPUs != "" && limits.Memory != "" && limits.PIDs > 0,
			"a healthcheck":                        len(s.Healthcheck.Test) > 1,
			"a restart":                            s.Restart == "unless-stopped",
		} {
			if !holds {
				t.Errorf("%s has not %s", name, what)
			}
		}
		for _, v := range s.Volumes {
			from, rest, _ := strings.Cut(v, ":")
			if _, named := c.Volumes[from]; !named && !strings.HasSuffix(rest, ":ro") {
				t.Errorf("%s can write to %s of the host", name, from)
			}
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s is open to everybody: %s", name, p)
			}
		}
	}
	if !c.Networks["back"].Internal || !slices.Equal(c.Services["redis"].Networks, []string{"back"}) || slices.Contains(c.Services["balancer"].Networks, "back") {
		t.Error("Redis can be reached by others than the replicas")
	}
}

func TestThreeReplicasShareARedisThatLosesNothingBehindABalancer(t *testing.T) {
	c := composition(t)
	balancer := read(t, "deploy/haproxy.cfg")
	servers := regexp.MustCompile(`(?m)^ +server \S+ (\S+):7420$`).FindAllStringSubmatch(balancer, -1)
	var replicas, asked []string
	for name, s := range c.Services {
		if s.Build != "" {
			replicas = append(replicas, name)
			if s.StopGrace != "20s" || !slices.Contains(s.Networks, "back") || !slices.Contains(s.Networks, "front") {
				t.Errorf("%s: %+v", name, s)
			}
		}
	}
	for _, s := range servers {
		asked = append(asked, s[1])
	}
	slices.Sort(replicas)
	if want := []string{"switchboard-1", "switchboard-2", "switchboard-3"}; !slices.Equal(replicas, want) || !slices.Equal(asked, want) {
		t.Errorf("there are %q, and clients are sent to %q", replicas, asked)
	}
	for _, want := range []string{"balance roundrobin", "uri /readyz", "hdr Host localhost", "retry-on conn-failure 503\n"} {
		if !strings.Contains(balancer, want) {
			t.Errorf("haproxy.cfg has no %s", want)
		}
	}
	for _, sticky := range []string{"cookie", "stick", "source", "hash"} {
		if regexp.MustCompile(`(?m)^ +[^#\n]*\b` + sticky).MatchString(balancer) {
			t.Errorf("haproxy.cfg is sticky, by %s", sticky)
		}
	}
	for _, want := range []string{"appendonly yes", "appendfsync always", "aof-load-truncated no", "maxmemory-policy noeviction"} {
		if !strings.Contains(read(t, "deploy/redis.conf"), want+"\n") {
			t.Errorf("redis.conf has no %s", want)
		}
	}
}

// maxProgram is how large the program may be. A dependency that adds megabytes shall be noticed.
const maxProgram = 80 << 20

// static builds the program as the Dockerfile does, once.
func static(t *testing.T) string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^RUN CGO_ENABLED=0 (go build .*) -o /out/switchboard (\S+)$`).FindStringSubmatch(read(t, "Dockerfile"))
	if line == nil {
		t.Fatal("the Dockerfile does not build it")
	}
	program := filepath.Join(t.TempDir(), "switchboard")
	build := exec.Command("sh", "-c", line[1]+" -o "+program+" "+line[2])
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

func TestTheImageHasAllThatItNeeds(t *testing.T) {
	program := static(t)
	t.Run("what is prepared is a good configuration", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "run")
		prepare := exec.Command("deploy/prepare", dir)
		prepare.Dir, prepare.Env = root, append(os.Environ(), "SWITCHBOARD="+program)
		if out, err := prepare.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, secret := range []string{"cluster", "store"} { // only another user, as that of the image is, may read a secret that all can read
			if err := os.Chmod(filepath.Join(dir, "config", "secrets", secret), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := config.Load(t.Context(), filepath.Join(dir, "config", "switchboard.yaml"), config.Options{Env: os.LookupEnv})
		if err != nil {
			t.Fatal(err)
		}
		if !c.Store.Shared() || c.Store.Relaxed || len(c.Cluster.Secret.Reveal()) != 64 || len(c.Keys) != 1 || len(c.Servers) != 5 || c.Listen != "0.0.0.0:7420" {
			t.Errorf("it is %+v", c)
		}
		_, password, _ := strings.Cut(strings.TrimSuffix(c.Store.URL.Reveal(), "@redis:6379"), "redis://:")
		conf, err := os.ReadFile(filepath.Join(dir, "redis", "redis.conf"))
		if err != nil || len(password) != 64 || !strings.HasSuffix(string(conf), "requirepass "+password+"\n") {
			t.Errorf("Redis is protected by %d characters: %v\n%s", len(password), err, conf)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("others can look into it: %v, %v", info, err)
		}
		if prepare := exec.Command("deploy/prepare", dir); true {
			prepare.Dir = root
			if out, err := prepare.CombinedOutput(); err == nil || !strings.Contains(string(out), "there already") {
				t.Errorf("a second time: %v\n%s", err, out)
			}
		}
	})
	t.Run("it is static", func(t *testing.T) {
		info, err := exec.Command("go", "version", "-m", program).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, info)
		}
		for _, want := range []string{"CGO_ENABLED=0", "-trimpath=true"} {
			if !bytes.Contains(info, []byte(want+"\n")) {
				t.Errorf("it was not built with %s", want)
			}
		}
		file, err := os.Stat(program)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("it has %.1f MiB", float64(file.Size())/(1<<20))
		if file.Size() > maxProgram {
			t.Errorf("it has %d bytes, want at most %d; docs/benchmarks.md names its largest parts", file.Size(), maxProgram)
		}
	})
	t.Run("it runs where there is nothing else", func(t *testing.T) {
		if runtime.GOOS != "linux" || os.Getuid() != 0 {
			t.Skip("skipped: the root file system of the image (only root may change it)")
		}
		dir := t.TempDir()
		text, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		files := map[string]string{
			"switchboard": string(text), "dev/null": "", "tmp/.keep": "",
			"etc/switchboard/switchboard.yaml":                "store: \"memory:\"\nservers:\n  nimbus: {transport: stdio, command: [/switchboard, sample, nimbus-search]}\ntenants:\n  default: {servers: [\"*\"]}\n",
			"etc/switchboard/tenants/default/tenant.yaml":     "tenant: default\ndefault_task: search\n",
			"etc/switchboard/tenants/default/tasks/a.yaml":    "task_id: search\nrequired_capabilities: [{verb: search, resource: internet}]\n",
			"etc/switchboard/tenants/default/policies/a.rego": "package switchboard.tenant\nallowed_tools contains c.id if {\n\tsome c in input.candidate_tools\n\t[hour, _, _] := time.clock([time.parse_rfc3339_ns(input.now), \"Pacific/Chatham\"])\n\thour >= 0\n}\n",
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(files[name]), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(dir, "dev/null"), 0o666); err != nil {
			t.Fatal(err)
		}
		for args, want := range map[string]string{
			"version": "switchboard ",
			"call web_search {\"query\":\"phishing\"} --config /etc/switchboard/switchboard.yaml": "results for \"phishing\"",
		} {
			cmd := exec.Command("/switchboard", strings.Fields(args)...)
			cmd.Dir, cmd.Env = "/", []string{"PATH=/"}
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%s: %v\n%s", args, err, out)
			}
		}
	})
}

func TestTheImageHasNoRoot(t *testing.T) {
	file := read(t, "Dockerfile")
	last := file[strings.LastIndex(file, "\nFROM "):]
	for _, want := range []string{"\nFROM scratch\n", "\nUSER 65532:65532\n", "ca-certificates.crt", "\nENTRYPOINT [\"/switchboard\"]\n"} {
		if !strings.Contains(last, want) {
			t.Errorf("the image has no %q", want)
		}
	}
	if strings.Contains(last, "\nRUN ") || strings.Contains(last, "ADD ") {
		t.Error("there is nothing in it that could run")
	}
}
