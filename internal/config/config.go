// Package config reads the files of the operator and of the tenants, and reports every fault in them.
//
// Load returns either a Config that is valid as a whole, or Faults: all faults of all files, each with
// file, line, column and a remedy. An unknown key is a fault at any depth. So is a key of a feature
// that is designed but not built yet. No other package checks the configuration again.
// docs/configuration.md describes the format; the tests of this package load its examples.
//
// Package importer reads the JSON in which other programs keep their MCP servers; package document reads
// YAML and JSON in general.
//
// Package catalog decides what a server offers and whether a manifest fits it. Package policy decides
// what policies say.
package config

import (
	"context"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Config is one consistent reading of all files. It is not modified after Load; a reload makes a new
// one.
type Config struct {
	// Warnings are probable mistakes that do not stop the service, sorted.
	Warnings Faults

	// Listen is the address of the HTTP endpoint, DefaultListen if the file gives none.
	Listen string

	// TLS is the certificate of the HTTP endpoint. The zero value means that it is served without TLS.
	TLS CertificateFiles

	// Hosts and Origins are the values that the Host and Origin headers may have, besides the loopback
	// names.
	Hosts, Origins []string

	// StartDeadline limits how long a start waits for servers; DefaultStartDeadline if the file gives
	// none.
	StartDeadline time.Duration

	// Grace limits how long a stop may take; DefaultGrace if the file gives none.
	Grace time.Duration

	// Tokenizer is the encoding that counts tokens; the first of switchboard.Tokenizers if the file
	// gives none.
	Tokenizer string

	// Currency is the code of the currency of all prices and budgets; "" if the file names none.
	Currency string

	Log      LogOutput
	Store    Store
	Vault    VaultSecrets
	Cluster  Cluster
	Receipts Receipts
	Cache    Cache

	// Secrets are the secrets that commands print, by name.
	Secrets map[string]PrintedSecret

	// Admission says what is let in of a server's offer without a person. Each of Servers has the rules that apply to it. Admitted is the content of
	// admitted.lock, also pins of servers that are not in Servers; nil if there is no such file.
	Admission switchboard.AdmissionRules
	Admitted  map[switchboard.PinID]switchboard.AdmittedPin `json:"-"` // see Pins

	Servers   []switchboard.Server // sorted by id
	Manifests map[switchboard.ServerID]Manifest
	Overlays  map[switchboard.ToolID]switchboard.Overlay // of the operator
	Tenants   map[switchboard.TenantID]*switchboard.Tenant
	Taxonomy  *switchboard.Taxonomy
	Registry  *capability.Registry // of capabilities; never nil
	Keys      []Key                // sorted by tenant and id
	Providers []capability.ProviderRow

	// These are about the admin side. People are sorted by id, Claims by issuer, Issuers by id.
	Admin   Admin
	People  []PersonKey
	Claims  []PersonClaim
	Issuers []Issuer

	// Recipients get notices. They are sorted by name.
	Recipients []switchboard.Recipient

	// ServerRegistries are where servers are looked for, in the order of the file.
	ServerRegistries []switchboard.ServerRegistry `json:",omitempty"`

	// Policies are the operator's policy files, sorted by path. nil means that the folder does not
	// exist, and then the shipped policies apply. If the folder is empty, nothing is allowed. This
	// package does not look into the files.
	Policies []switchboard.PolicyFile

	// TenantPolicies are the policy files of the tenants that have such a folder. An empty folder
	// allows nothing.
	TenantPolicies map[switchboard.TenantID][]switchboard.PolicyFile

	// Implied means that no tenant is configured. There is then one tenant, DefaultTenant, with every
	// server and the task LocalTask.
	Implied bool

	// Faulty are the parts with faults, sorted by name. Elsewhere in Config such a part has its last
	// good state; a part without one is absent, and is not served.
	Faulty []FaultyPart

	// Refused are the tenants that are not served because of a fault.
	Refused map[switchboard.TenantID]bool

	sideEffects []string // that exist, sorted

	keysUnknown bool // a tenant in Refused may have keys that could not be read
	good        lastGood
	operator    *operatorReading // see SharesOperator; nil if a part of the operator is faulty, or if files were replaced

	// Watch are the files and folders that Load looked at, sorted, including absent ones. A change in
	// any of them, or its appearance, can change the outcome of the next Load.
	Watch []string

	// Folder is the absolute path of the folder of the file.
	Folder string

	// Variables are the environment variables that the references were looked up in, sorted.
	Variables []string
}

// Defaults, and the names that exist without configuration in single-user use.
const (
	DefaultListen                             = "127.0.0.1:7420"
	DefaultStartDeadline                      = 10 * time.Second
	DefaultGrace                              = 10 * time.Second
	DefaultTenant        switchboard.TenantID = "default"
	LocalTask            switchboard.TaskID   = "local"
)

// A LogOutput says what the log output of a process that serves is like.
type LogOutput struct {
	Format string     // LogText or LogJSON
	Level  slog.Level // records below it are left out
	To     string     // the absolute path of a file; "" means stderr
}

// The formats of the log output.
const (
	LogText = "text"
	LogJSON = "json"
)

// A Cache limits how long and how much of the results of deterministic tools is cached. The zero Cache
// caches nothing.
type Cache struct {
	TTL   time.Duration
	Bytes int // for each tenant
}

// DefaultCacheBytes is the size of a tenant's cache if the file gives none.
const DefaultCacheBytes = 64 << 20

// A Manifest is the offer of a server, read from a file or URL. It is one JSON object; nothing else
// about it has been checked.
type Manifest struct {
	Name string // the file or URL, for faults
	Data []byte

	// Digest is a digest of the file name or the whole URL, and of the program or address of the server. A
	// copy counts as a copy of this manifest only if its digest is the same.
	Digest string

	// Fault, if set, says why there is no Data. Then no tool of the server is served.
	Fault string
}

// A Key is an API key of a tenant. The key itself is stored nowhere: Hash is its SHA-256.
type Key struct {
	Tenant switchboard.TenantID
	ID     string // also the id of the principal
	Hash   [32]byte
	Tasks  []switchboard.TaskID // it may bind these; none means only the default task
	Roles  []string             // sorted
	Tier   string
	Mode   switchboard.Mode // that of the tenant, or a narrower one
	// Expires is when the key expires; the zero time means never.
	Expires time.Time `json:",omitzero"`
}

// Options say where the files come from. The zero value reads the disk and the environment, and
// fetches nothing.
type Options struct {
	// Env looks up ${env:NAME}; nil means os.LookupEnv.
	Env func(name string) (string, bool)

	// Fetch returns the manifest at a URL from the operator's file, over the network of the server that it describes. Its
	// context ends after MaxFetchTime. If Fetch is nil, such a manifest is a fault. It must be safe for concurrent use.
	Fetch func(ctx context.Context, url string, n switchboard.Network) ([]byte, error)

	// FS, if set, is the folder of the configuration, instead of the disk. Absolute paths are still
	// read from the disk.
	FS fs.FS

	// Text, if not nil, is the content of the file, which is then not read. So a change can be checked before it is
	// written.
	Text []byte

	// Watch, if set, is called with each path of Config.Watch, once or more often. It is also called
	// if Load returns Faults, so that the caller notices the repair.
	Watch func(path string)

	// Previous, if set, is the configuration in force. Parts that are faulty now keep the state that they
	// have in it.
	Previous *Config

	// Data is the folder of Switchboard's own data, which no server may be given; "" means that there is none.
	Data string

	// Replace are files of the configuration's folder that count with another content than on the disk, by their paths with slashes. nil means
	// that the file does not exist. It is for finding out what a change would do. With files replaced, no command of secrets is run: the files are
	// of somebody who may perhaps not run code. A command that Previous has keeps its secret, and another one has none.
	Replace map[string][]byte

	// Unchanged says that all files but those of Replace are as they were when Previous was read. Then Load may take everything from Previous but the
	// folder of the tenant whose files are replaced.
	Unchanged bool

	// CheckPolicies, if set, reports the faults in the policy files of one tenant. If it is nil, the
	// files are not checked. The error is Faults.
	CheckPolicies func(tenant switchboard.TenantID, files []switchboard.PolicyFile) error
}

// Load reads file and everything that belongs to it: taxonomy.yaml, capabilities, overlays, policies and
// tenants in the same folder, and the manifests and secrets that it names.
//
// A fault in a tenant's folder, in an operator's overlay or in a manifest is no error: it is in
// Config.Faulty. Any other fault is an error. The error is Faults, and holds all of them.
func Load(ctx context.Context, file string, opts Options) (*Config, error) {
	if opts.FS != nil {
		return load(ctx, file, opts)
	}
	for n := 1; ; n++ {
		journal, _ := readJournalText(filepath.Dir(file)) // load reports an error
		c, err := load(ctx, file, opts)
		if n == maxReadings || sameJournal(filepath.Dir(file), journal) {
			return c, err
		}
	}
}

// load is Load, while no change of several files begins or ends.
func load(ctx context.Context, file string, opts Options) (*Config, error) {
	if c := rereadTenant(file, opts); c != nil {
		return c, nil
	}
	l := newLoader(file, opts)
	defer l.close()
	f := mainFile{l}
	f.read(ctx)
	readAdmitted(l)
	l.readTaxonomyFile()
	f.readCeilings()
	readRequests(f)
	registry := newRegistryReader(l)
	registry.read()
	l.readOperatorBudgets()
	registry.check()
	l.readOverlays()
	registry.checkProviders()
	registry.checkGrants()
	l.cfg.Policies = l.readPolicies("policies")
	l.readManifests(ctx)
	l.readTenants()
	operator := newOperatorReading(l)
	l.settleKeys(l.tenantFolders)
	l.settleParts(nil)
	l.checkReachable()
	if l.sink.Faulty() {
		for _, p := range l.parts {
			l.sink.AddAll(p.sink)
		}
		return nil, l.sink.Err(file)
	}
	finish(l)
	operator.keep()
	return l.cfg, nil
}

// finish writes down what Load has met.
func finish(l *loader) {
	l.cfg.Warnings = document.SortFaults(l.sink.Warnings)
	l.cfg.Watch = slices.Compact(slices.Sorted(slices.Values(l.watched)))
	l.cfg.Folder = l.absDir
	l.cfg.Variables = slices.Compact(slices.Sorted(slices.Values(l.variables)))
}

// loader is the state of one Load. Each of its embedded parts owns its own state: the files, the names that
// references may use, and the API keys.
type loader struct {
	*configFolder
	*vocabulary
	*keyring

	opts          Options
	cfg           *Config
	parts         []*partState    // their faults stay in them; in the order of reading
	tenantFolders []*tenantFolder // of the tenants that have a folder

	listens      listenValues
	manifestRefs []manifestRef
	packages     []placedName      // that the servers' commands fetch
	permitted    []permittedPath   // of servers
	bounds       map[string]*bound // of tenants
	noTenantRows bool              // no tenants: in switchboard.yaml
	forTenants
	overlaySeen map[switchboard.ToolID]document.Value
}

// forTenants are the operator's settings for all tenants.
type forTenants struct {
	tokenBudget int // token_budget, 0 if it is not given
	onFull      switchboard.OnFull
	vetoForTask bool
	budgetRows  document.Value // read after the taxonomy
	budgets     []*switchboard.Budget
	approvals   switchboard.ApprovalSettings // of tenants that have none in their row
}

// newConfig returns a Config with the defaults and without servers.
func newConfig() *Config {
	return &Config{
		Listen: DefaultListen, StartDeadline: DefaultStartDeadline, Grace: DefaultGrace, Tokenizer: switchboard.Tokenizers[0],
		Log:       LogOutput{Format: LogText},
		Receipts:  Receipts{Keep: DefaultRetention, MaxSize: DefaultMaxSize},
		Manifests: map[switchboard.ServerID]Manifest{},
		Overlays:  map[switchboard.ToolID]switchboard.Overlay{},
		Tenants:   map[switchboard.TenantID]*switchboard.Tenant{},
		Registry:  &capability.Registry{},

		sideEffects:    capability.SideEffects,
		TenantPolicies: map[switchboard.TenantID][]switchboard.PolicyFile{},
		Refused:        map[switchboard.TenantID]bool{},
		good:           newGood(),
	}
}

// SingleUser returns the configuration of one local user who has every tool of every server.
func SingleUser(servers []switchboard.Server) *Config {
	c := newConfig()
	c.Implied = true
	c.Taxonomy, _ = switchboard.NewTaxonomy(nil, nil) // the built-in terms are consistent
	c.Servers = slices.SortedFunc(slices.Values(servers), func(a, b switchboard.Server) int { return strings.Compare(string(a.ID), string(b.ID)) })
	tenant := &switchboard.Tenant{
		ID: DefaultTenant, ByName: true, DefaultTask: LocalTask,
		Tasks: map[switchboard.TaskID]*switchboard.Task{LocalTask: localTask()},
	}
	for _, s := range c.Servers {
		tenant.Servers = append(tenant.Servers, s.ID)
	}
	c.Tenants[DefaultTenant] = tenant
	return c
}

func newLoader(file string, opts Options) *loader {
	l := &loader{
		configFolder: newConfigFolder(file, opts),
		vocabulary:   &vocabulary{servers: map[string]*switchboard.Server{}, disabled: map[string]bool{}},
		opts:         opts,
		cfg:          newConfig(),
		bounds:       map[string]*bound{},
		overlaySeen:  map[switchboard.ToolID]document.Value{},
	}
	l.keyring = newKeyring(l.previous())
	return l
}

// checkReachable reports a fault if other machines can reach the listen address and no tenant has a
// key.
func (l *loader) checkReachable() {
	if l.listens.agents.Sink == nil || !l.cfg.Keyless() {
		return
	}
	host, _, err := net.SplitHostPort(l.cfg.Listen)
	if err != nil || host == "localhost" {
		return
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() {
		return
	}
	l.listens.agents.Fault("%s is reachable from other machines, and no tenant has a key; add one (switchboard key new), or listen at %s", l.listens.agents.Shown(), DefaultListen)
}
