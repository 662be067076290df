// Package update looks at another version of a server's package before anything is changed. It shows the packages that would come, and the definitions that the server would offer.
//
// Both versions are installed in folders that are removed afterwards, and are started there at sandbox: strict without a network and without the variables of the
// server's row, because no person has said yes to the new one yet.
package update

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/npm"
	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
)

const (
	startWait = 30 * time.Second // of a version, until it has answered
	stopWait  = 5 * time.Second
)

// A Look is what another version of a package would change.
type Look struct {
	Server switchboard.ServerID `json:"server"`
	From   string               `json:"from,omitempty"` // NAME@VERSION; "" if there was no lock
	To     string               `json:"to"`
	Digest switchboard.Digest   `json:"digest"` // of the lock, which accepting it names

	Packages []packagelock.PackageChange `json:"packages"`
	Tools    []ToolChange                `json:"tools"`

	// Unknown says why the definitions of a version are not known; then Tools is empty.
	Unknown string `json:"unknown,omitempty"`

	same bool
}

// A ToolChange is the difference of one tool's definition.
type ToolChange struct {
	Name    string   `json:"name"`
	Change  string   `json:"change"` // "new", "gone", or the name of an admission.Class
	Members []string `json:"members,omitempty"`
}

// Nothing reports whether the locks name the same packages and programs.
func (l *Look) Nothing() bool { return l.same }

// Preview looks at what the lock now would change for a server. row is the server's row. was is the lock in force, nil if there is none. guard is a command that runs
// process.Guard. own are Switchboard's own files and folders, which the versions do not see. The error is ctx's.
func Preview(ctx context.Context, row *switchboard.Server, was, now *packagelock.Lock, guard, own []string) (l *Look, err error) {
	x := trial{row, guard, own}
	l = &Look{Server: row.ID, To: now.Spec.String(), Digest: now.Digest(), Packages: packagelock.Compare(was, now), Tools: []ToolChange{}}
	if was != nil {
		l.From, l.same = was.Spec.String(), was.Digest() == l.Digest
	}
	if l.Packages == nil {
		l.Packages = []packagelock.PackageChange{}
	}
	if l.Nothing() {
		return l, nil
	}
	before := map[string]json.RawMessage{}
	if was != nil {
		if before, err = x.list(ctx, was); err != nil {
			l.Unknown = fmt.Sprintf("%s does not answer behind walls: %v", was.Spec, err)
			return l, ctx.Err()
		}
	}
	after, err := x.list(ctx, now)
	if err != nil {
		l.Unknown = fmt.Sprintf("%s does not answer behind walls: %v", now.Spec, err)
		return l, ctx.Err()
	}
	l.Tools = append(l.Tools, compareTools(before, after)...)
	return l, nil
}

// compareTools returns the differences, by the names of tools.
func compareTools(before, after map[string]json.RawMessage) (all []ToolChange) {
	both := maps.Clone(before)
	maps.Copy(both, after)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		was, had := before[name]
		now, has := after[name]
		switch {
		case !had:
			all = append(all, ToolChange{Name: name, Change: "new"})
		case !has:
			all = append(all, ToolChange{Name: name, Change: "gone"})
		default:
			class, differences := admission.CompareTools(was, now)
			if class == admission.Same {
				continue
			}
			c := ToolChange{Name: name, Change: class.String()}
			for _, d := range differences {
				c.Members = append(c.Members, d.Member)
			}
			all = append(all, c)
		}
	}
	return all
}

// A trial starts versions of a package.
type trial struct {
	row        *switchboard.Server
	guard, own []string
}

// list returns the definitions of the tools that a version offers, by name.
func (x trial) list(ctx context.Context, l *packagelock.Lock) (map[string]json.RawMessage, error) {
	dir, err := os.MkdirTemp("", "switchboard-look-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	program, cache := filepath.Join(dir, "program"), filepath.Join(dir, "cache")
	if err := os.Mkdir(program, 0o700); err != nil {
		return nil, err
	}
	if err := npm.Install(ctx, l, program, cache); err != nil {
		return nil, err
	}
	s, err := confined(x.row, l, program)
	if err != nil {
		return nil, err
	}
	offer, err := x.ask(ctx, s)
	if err != nil {
		return nil, err
	}
	tools := make(map[string]json.RawMessage, len(offer.Tools))
	for _, definition := range offer.Tools {
		var t struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(definition, &t) == nil {
			tools[t.Name] = definition
		}
	}
	return tools, nil
}

// confined returns the row to start a version by. It may read the folders and files that its arguments name, since many programs end without them.
func confined(row *switchboard.Server, l *packagelock.Lock, dir string) (*switchboard.Server, error) {
	command, err := npm.Command(l, dir, row.Command)
	if err != nil {
		return nil, err
	}
	s := &switchboard.Server{
		ID: row.ID, Transport: switchboard.TransportStdio, Command: command, Dir: dir, Trust: switchboard.TrustDeclared, Share: switchboard.SharePrincipal,
		Walls:   switchboard.Confinement{Level: switchboard.SandboxStrict},
		Package: switchboard.Package{Dir: dir},
	}
	for i, arg := range row.Command {
		if _, err := os.Stat(arg); i > 0 && filepath.IsAbs(arg) && !errors.Is(err, fs.ErrNotExist) {
			s.Walls.Read = append(s.Walls.Read, arg)
		}
	}
	return s, nil
}

// ask starts a server, and returns what it offers. It ends the server.
func (x trial) ask(ctx context.Context, s *switchboard.Server) (switchboard.Offer, error) {
	answered := make(chan *upstream.Failure, 1)
	fleet := upstream.New(upstream.Options{
		OnePrincipal: true, Guard: x.guard, Own: func() []string { return x.own }, Log: slog.New(slog.DiscardHandler),
		OnLink: func(_ switchboard.ServerID, _ bool, why *upstream.Failure) {
			select {
			case answered <- why:
			default:
			}
		},
	})
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWait)
		defer cancel()
		fleet.Close(ending)
	}()
	fleet.Set([]switchboard.Server{*s})
	timer := time.NewTimer(startWait)
	defer timer.Stop()
	select {
	case why := <-answered:
		if why != nil {
			return switchboard.Offer{}, errors.New(cmp.Or(why.Message, "it has failed"))
		}
	case <-timer.C:
		return switchboard.Offer{}, fmt.Errorf("no answer within %s", startWait)
	case <-ctx.Done():
		return switchboard.Offer{}, ctx.Err()
	}
	offers := fleet.Offers()
	if len(offers) != 1 {
		return switchboard.Offer{}, errors.New("it offers nothing")
	}
	return offers[0], nil
}
