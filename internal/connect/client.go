// Package connect puts Switchboard into the configuration of MCP clients, in the place of the servers that stand there, and takes it out again.
//
// A table has a row for each client: where its files are, how they are written, and how it spells a server. Prepare reads the files and decides
// what would change; Apply changes them. Disconnect undoes it. What was taken out of a file stands in a record in the data folder before the file
// is changed, so that a kill at any instant can be undone.
//
// Package clientfile edits the text of the files, importer decides whether a server can be served, and config/edit writes switchboard.yaml.
package connect

import (
	"encoding/json"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/clientfile"
)

// Name is the name of our entry in the clients' files.
const Name = "switchboard"

// A Host is the machine and the user that the clients belong to.
type Host struct {
	OS   string // as runtime.GOOS
	Home string // the user's home folder
	Dir  string // the folder that the user works in, absolute

	// Env returns a variable of the environment.
	Env func(name string) (string, bool)

	// LookPath returns the path of a program, as exec.LookPath does.
	LookPath func(program string) (string, error)

	// Exists reports whether a file exists; nil means on this machine.
	Exists func(file string) bool
}

func (h *Host) exists(file string) bool {
	if h.Exists != nil {
		return h.Exists(file)
	}
	return exists(file)
}

// env returns a variable, or "" if it is not set.
func (h *Host) env(name string) string {
	v, _ := h.Env(name)
	return v
}

// join joins the parts of a path as the host's system does.
func (h *Host) join(parts ...string) string {
	if h.OS == "windows" {
		return strings.Join(parts, `\`)
	}
	return path.Join(parts...)
}

// settings returns the folder of the settings of the user's programs.
func (h *Host) settings() string {
	switch h.OS {
	case "windows":
		if dir := h.env("APPDATA"); dir != "" {
			return dir
		}
		return h.join(h.Home, "AppData", "Roaming")
	case "darwin":
		return h.join(h.Home, "Library", "Application Support")
	}
	return h.xdg()
}

// localSettings returns the folder of the settings that Windows keeps on this machine only.
func (h *Host) localSettings() string {
	if dir := h.env("LOCALAPPDATA"); dir != "" {
		return dir
	}
	return h.join(h.Home, "AppData", "Local")
}

// xdg returns the folder of settings of the programs that look in the same place on every system.
func (h *Host) xdg() string {
	if dir := h.env("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	return h.join(h.Home, ".config")
}

// A Scope is the range of a file: all work of the user, or the work in one folder.
type Scope string

// The scopes. Local servers stand in the user's own file, but count in one folder only.
const (
	ScopeUser    Scope = "user"
	ScopeLocal   Scope = "local"
	ScopeProject Scope = "project"
)

// A Location is one list of servers in a file of a client.
type Location struct {
	Scope   Scope    `json:"scope"`
	File    string   `json:"file"`
	Section []string `json:"section"` // the keys that lead to the list

	// Dir is the folder that the client starts the servers of this place in, or "" if that is where the user works.
	Dir string `json:"dir,omitempty"`
}

// own reports whether the place is the user's own, and not shared with others by a repository.
func (p Location) own() bool { return p.Scope != ScopeProject }

// A Client is a row of the table.
type Client struct {
	ID   string // in commands and records
	Name string // in texts

	// Tried says that a test runs this client's own program. Otherwise the row is written by the client's documents.
	Tried bool

	// Then says what the user does so that the client reads its file again.
	Then string

	// Home says where the user's file is, for people.
	Home string

	programs []string                           // by which it is known to be installed
	marks    func(h *Host) []string             // folders by which it is known to be installed
	form     clientfile.Form                    // of its files
	places   func(h *Host) []Location           // the first of each scope is the one that our entry is written to
	spell    func(t SwitchboardEntry) any       // our entry
	dialect  entryDialect                       // how to understand its entries
	command  func(t SwitchboardEntry) []string  // its own command that adds our entry, or nil
	noHTTP   string                             // why it takes no address, or ""
	desktop  bool                               // it is not started from a shell, and so may lack the user's PATH
	blocked  func(values map[string]any) string // why the client would ignore our entry, or ""
}

// A SwitchboardEntry says what our entry in the file of a client starts or calls.
type SwitchboardEntry struct {
	Command []string // the program and its arguments; nil if URL is used
	URL     string
	Key     string // the variable that has the key for URL, or ""
}

// object is a JSON object with its keys in order.
type object []pair

type pair struct {
	key   string
	value any
}

// MarshalJSON returns the object.
func (o object) MarshalJSON() ([]byte, error) {
	out := []byte("{")
	for i, p := range o {
		if i > 0 {
			out = append(out, ',')
		}
		key, err := json.Marshal(p.key)
		if err != nil {
			return nil, err
		}
		value, err := marshal(p.value)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}

// marshal is json.Marshal without the escapes for HTML.
func marshal(v any) ([]byte, error) {
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(out.String(), "\n")), nil
}

// entry returns our entry of a name for the client.
func (c *Client) entry(name string, t SwitchboardEntry) (clientfile.Entry, error) {
	value, err := marshal(c.spell(t))
	return clientfile.Entry{Name: name, Value: value}, err
}

// Entry returns our entry as text, as it would stand in an empty file of the client.
func (c *Client) Entry(t SwitchboardEntry) (string, error) {
	e, err := c.entry(Name, t)
	if err != nil {
		return "", err
	}
	splices, err := clientfile.Rewrite("", nil, c.form, c.section(), nil, []clientfile.Entry{e})
	if err != nil {
		return "", err
	}
	text, err := clientfile.Apply(nil, splices)
	return string(text), err
}

// Command returns the client's own command that adds our entry, or nil if it has none.
func (c *Client) Command(t SwitchboardEntry) []string {
	if c.command == nil {
		return nil
	}
	return c.command(t)
}

func (c *Client) section() []string {
	return c.places(&Host{OS: "linux", Home: "/", Dir: "/", Env: func(string) (string, bool) { return "", false }})[0].Section
}

// WhyNoURL returns why the client's file can hold no address, or "" if it can.
func (c *Client) WhyNoURL() string { return c.noHTTP }

// Desktop reports whether the client may lack the PATH of the user's shell.
func (c *Client) Desktop() bool { return c.desktop }

// Clients returns the table.
func Clients() []*Client { return table }

// Find returns the client of an id, or nil.
func Find(id string) *Client {
	i := slices.IndexFunc(table, func(c *Client) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return table[i]
}

// IDs returns the ids of all clients.
func IDs() []string {
	var out []string
	for _, c := range table {
		out = append(out, c.ID)
	}
	return out
}
