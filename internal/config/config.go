// Package config reads the operator's and the tenants' files, and says all
// that is wrong with them.
//
// Load gives either a Config that is valid as a whole, or Faults: every one
// that was found, over all files, each with file, line, column and what to do.
// A key that is not known is a fault, at any depth, and so is one whose
// feature is designed and not yet built. Nothing else in the program checks
// configuration again. The format is described in docs/configuration.md, whose
// examples the tests of this package load.
//
// LoadMCPServers and Import read the JSON in which other programs keep their
// MCP servers.
//
// What a server offers, and whether a manifest fits it, is for package catalog;
// what policies say, for package policy.
package config

import (
	"context"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Config is one consistent reading of all files. It is not modified after
// Load; a reload makes a new one.
type Config struct {
	// Warnings are what is most likely a mistake, and is served all the same; sorted.
	Warnings Faults

	// Listen is the address to serve HTTP at, DefaultListen if none is given.
	Listen string

	// Hosts and Origins are what the headers of these names may say besides
	// the loopback names.
	Hosts, Origins []string

	// StartDeadline is how long a start waits for servers,
	// DefaultStartDeadline if none is given.
	StartDeadline time.Duration

	// Grace is how long stopping may take, DefaultGrace if none is given.
	Grace time.Duration

	// Tokenizer is the encoding in which tokens are counted, the first of
	// switchboard.Tokenizers if none is given.
	Tokenizer string

	Store    Store
	Cluster  Cluster
	Receipts Receipts
	Cache    Cache

	Servers   []switchboard.Server // sorted by id
	Manifests map[switchboard.ServerID]Manifest
	Overlays  map[switchboard.ToolID]switchboard.Overlay // the operator's
	Tenants   map[switchboard.TenantID]*switchboard.Tenant
	Taxonomy  *switchboard.Taxonomy
	Keys      []Key // sorted by tenant and id

	// Policies are the operator's files of policy, sorted by path. nil means
	// that there is no folder of them, and the shipped ones count; where the
	// folder is empty, no policy allows anything. What is in the files has not
	// been looked at.
	Policies []switchboard.PolicyFile

	// TenantPolicies are those of the tenants that have such a folder, which
	// may be empty, and then allows nothing.
	TenantPolicies map[switchboard.TenantID][]switchboard.PolicyFile

	// Implied is set where no tenant is configured: there is then one,
	// DefaultTenant, with every server and the task LocalTask.
	Implied bool

	// Faulty are the parts with faults, sorted by name. What the rest of Config says of
	// them is their last good state, or, where they have none, that they are not served.
	Faulty []FaultyPart

	// Refused are the tenants that are not served because of a fault.
	Refused map[switchboard.TenantID]bool

	keysUnknown bool // of a tenant in Refused
	good        good

	// Watch are the files and folders that were looked at, sorted, also those
	// that are absent. A change in any of them, or its appearance, can change
	// the outcome of the next Load.
	Watch []string
}

// Defaults, and the names that are implied in single-user use.
const (
	DefaultListen                             = "127.0.0.1:7420"
	DefaultStartDeadline                      = 10 * time.Second
	DefaultGrace                              = 10 * time.Second
	DefaultTenant        switchboard.TenantID = "default"
	LocalTask            switchboard.TaskID   = "local"
)

// A Cache is what may be kept of the results of deterministic tools. The zero Cache
// keeps nothing.
type Cache struct {
	TTL   time.Duration
	Bytes int // for each tenant
}

// DefaultCacheBytes is how much is kept for each tenant where nobody says.
const DefaultCacheBytes = 64 << 20

// A Manifest is what a file or URL says that a server offers. It is one JSON
// object; no more of it has been checked.
type Manifest struct {
	Name string // the file or URL, for faults
	Data []byte

	// Of is a digest of the file or the whole URL, and of the program or the address of the server: a copy of
	// another manifest, or for another server, is no copy of this one.
	Of string

	// Fault, if set, is why there are no Data: then no tool of the server is served.
	Fault string
}

// A Key is an API key of a tenant. The key itself is nowhere: Hash is its
// SHA-256.
type Key struct {
	Tenant switchboard.TenantID
	ID     string // also of the principal
	Hash   [32]byte
	Tasks  []switchboard.TaskID // that it may bind; none means only the default task
	Roles  []string             // sorted
	Tier   string
	Mode   switchboard.Mode // the tenant's, or a narrower one
	// Expires is when the key ends; the zero time means never.
	Expires time.Time `json:",omitzero"`
}

// Options are where the files come from. The zero value reads the disk and the
// environment, and fetches nothing.
type Options struct {
	// Env looks up ${env:NAME}; nil means os.LookupEnv.
	Env func(name string) (string, bool)

	// Fetch gets the manifest at a URL that stands in the operator's file. Its
	// context ends after MaxFetchTime. nil means that such a manifest is a
	// fault. It must be safe for concurrent use.
	Fetch func(ctx context.Context, url string) ([]byte, error)

	// FS, where set, is the folder of the configuration, in place of the disk.
	// Absolute paths are still read from the disk.
	FS fs.FS

	// Watch, where set, is called with each path of Config.Watch, once or more
	// often, also where Load then gives Faults: so that their repair is seen.
	Watch func(path string)

	// Was, where set, is the configuration that is in force: parts that are faulty
	// now stay as they were in it.
	Was *Config

	// CheckPolicies, where set, says what is wrong with the files of policy of one
	// tenant. Where it is not, nobody looks into them. The error is Faults.
	CheckPolicies func(tenant switchboard.TenantID, files []switchboard.PolicyFile) error
}

// Load reads file and all that belongs to it: taxonomy.yaml, overlays, policies
// and tenants in the same folder, and the manifests and secrets that it names.
//
// A fault of a tenant's folder, of an operator's overlay or of a manifest is no error: it
// is in Config.Faulty. Any other fault is. The error is Faults: all of them.
func Load(ctx context.Context, file string, opts Options) (*Config, error) {
	l := newLoader(file, opts)
	defer l.close()
	l.operator()
	l.taxonomy()
	l.ceilings()
	l.overlays()
	l.cfg.Policies = l.policies("policies")
	l.tenants()
	l.manifests(ctx)
	l.settle()
	l.reachable()
	if l.sink.faulty() {
		for _, p := range l.parts {
			l.sink.take(p.sink)
		}
		return nil, l.sink.err(file)
	}
	l.cfg.Warnings = inOrder(l.sink.warnings)
	slices.Sort(l.cfg.Watch)
	l.cfg.Watch = slices.Compact(l.cfg.Watch)
	return l.cfg, nil
}

// loader is the state of one Load.
type loader struct {
	opts  Options
	sink  *sink // of the part that is being read
	cfg   *Config
	parts []*partState // that a fault does not leave, in the order of reading
	homes []*tenant    // that have a folder

	file string // as it was given
	dir  string // of file, as it was given; faults name files in it
	abs  string // dir, absolute: the workspace
	root *os.Root
	fsys fs.FS // of dir

	// home, where not "", is the folder of the tenant that is being read, and
	// homeFS what is in it. No link in there leads out of it.
	home   string
	homeFS fs.FS

	// readable is false where switchboard.yaml could not be read: then nobody
	// knows which names exist, and no reference is checked.
	readable bool

	listen   value // listen, where it is given
	servers  map[string]*switchboard.Server
	disabled map[string]bool // servers with enabled: false
	ids      []string        // of servers, sorted
	named    []manifestRef
	bounds   map[string]*bound // of tenants
	implicit bool              // no tenants: in switchboard.yaml
	tokens   int               // token_budget, 0 where it is not given
	onFull   switchboard.OnFull

	vetoForTask bool
	tools       map[switchboard.ToolID]value
	hashes      map[[32]byte]keyRow // over all tenants
	claims      []keyClaim
	disputed    map[[32]byte]bool // keys that are nobody's
}

func newLoader(file string, opts Options) *loader {
	l := &loader{
		opts: opts, sink: &sink{}, file: file, dir: filepath.Dir(file),
		cfg: &Config{
			Listen: DefaultListen, StartDeadline: DefaultStartDeadline, Grace: DefaultGrace, Tokenizer: switchboard.Tokenizers[0],
			Receipts:  Receipts{Keep: DefaultKeep, MaxSize: DefaultMaxSize},
			Manifests: map[switchboard.ServerID]Manifest{},
			Overlays:  map[switchboard.ToolID]switchboard.Overlay{},
			Tenants:   map[switchboard.TenantID]*switchboard.Tenant{},

			TenantPolicies: map[switchboard.TenantID][]switchboard.PolicyFile{},
			Refused:        map[switchboard.TenantID]bool{},
			good:           newGood(),
		},
		servers: map[string]*switchboard.Server{}, disabled: map[string]bool{},
		bounds: map[string]*bound{},
		tools:  map[switchboard.ToolID]value{},
		hashes: map[[32]byte]keyRow{}, disputed: map[[32]byte]bool{},
	}
	if l.opts.Env == nil {
		l.opts.Env = os.LookupEnv
	}
	var err error
	if l.abs, err = filepath.Abs(l.dir); err != nil {
		l.abs = l.dir
	}
	l.fsys = opts.FS
	if l.fsys == nil {
		// Through a root, so that no link in a tenant's folder leads to a
		// file that is none of its business.
		if l.root, err = os.OpenRoot(l.dir); err == nil {
			l.fsys = l.root.FS()
		}
	}
	l.watch(".")
	return l
}

func (l *loader) close() {
	if l.root != nil {
		_ = l.root.Close() // it was only read from
	}
}

// reachable refuses an address that strangers reach while nobody has a key.
func (l *loader) reachable() {
	if l.listen.sink == nil || !l.cfg.Keyless() {
		return
	}
	host, _, err := net.SplitHostPort(l.cfg.Listen)
	if err != nil || host == "localhost" {
		return
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() {
		return
	}
	l.listen.fault("%s is reachable from other machines, and no tenant has a key; add one (switchboard key new), or listen at %s", l.listen.shown(), DefaultListen)
}
