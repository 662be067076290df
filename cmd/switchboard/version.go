package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"github.com/summit-switchboard/switchboard/licenses"
)

// name is the name that Switchboard reports to clients and servers.
const name = "switchboard"

// A build says which source a program was built from.
type build struct {
	Version  string    `json:"version"` // of the module, or "devel"
	Commit   string    `json:"commit,omitempty"`
	Time     time.Time `json:"time,omitzero"`      // of the commit
	Modified bool      `json:"modified,omitempty"` // the source was not that of the commit
	Go       string    `json:"go"`
	Platform string    `json:"platform"`
}

// version returns the module's version, or "devel".
func version() string { return readBuild().Version }

// readBuild returns the build of this program.
var readBuild = sync.OnceValue(func() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	return buildOf(info)
})

func buildOf(info *debug.BuildInfo) build {
	b := build{Version: "devel", Go: info.GoVersion, Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time, _ = time.Parse(time.RFC3339, s.Value) // otherwise there is no time
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns the build on one line.
func (b build) String() string {
	commit := "built without a commit"
	if b.Commit != "" {
		commit = "commit " + b.Commit[:min(12, len(b.Commit))]
		if !b.Time.IsZero() {
			commit += " of " + b.Time.UTC().Format("2006-01-02 15:04 UTC")
		}
		if b.Modified {
			commit += ", with changes that are not committed"
		}
	}
	return fmt.Sprintf("%s %s (%s; %s, %s)", name, b.Version, commit, b.Go, b.Platform)
}

func (b build) write(w io.Writer) error {
	_, err := fmt.Fprintln(w, b)
	return err
}

type versionCmd struct {
	outputFlags
	Licenses bool `help:"Print the licenses of Switchboard and of everything that is in the program."`
}

// Run prints the version, or the licenses.
func (v versionCmd) Run(out streams) error {
	if v.Licenses {
		_, err := io.WriteString(out.raw, licenses.Text)
		return err
	}
	b := readBuild()
	if v.JSON {
		return json.NewEncoder(out.raw).Encode(b)
	}
	return b.write(out.out)
}

// A versionFlag prints the version and ends the command.
type versionFlag bool

// BeforeReset prints the version before the command is checked.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	if err := readBuild().write(app.Stdout); err != nil {
		return err
	}
	app.Exit(exitOK)
	return nil
}
