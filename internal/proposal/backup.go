package proposal

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxBackups is how many backups are kept: of the proposals of one tenant, and of those of the operator's files.
const maxBackups = 10

// backupsOf returns the group of the backups of a tenant.
func backupsOf(tenant switchboard.TenantID) string { return groupBackups + "/" + string(tenant) }

// A backup has the files that a proposal has replaced, byte for byte.
type backup struct {
	When  time.Time   `json:"when"`
	Files []savedFile `json:"files"` // in the order of the proposal
}

// A savedFile is one file of a backup.
type savedFile struct {
	Path      string `json:"path"`
	Text      []byte `json:"text"`                 // null: there was no file
	NewFolder bool   `json:"new_folder,omitempty"` // nor its folder
}

// backUp stores the present files of a proposal, and drops the oldest backups.
func (b *Keeper) backUp(ctx context.Context, p *KeptProposal) error {
	saved := backup{When: time.Now().UTC()}
	for _, f := range p.Files {
		text, err := b.o.Editor.Read(&switchboard.Officer{Operator: true}, f.Path)
		if err != nil {
			return err
		}
		saved.Files = append(saved.Files, savedFile{f.Path, text, !change.HasFolder(b.o.Editor, f.Path)})
	}
	if err := b.write(ctx, backupsOf(p.Tenant), p.ID, store.Any, saved, nil); err != nil {
		return err
	}
	return b.trimBackups(ctx, backupsOf(p.Tenant))
}

// trimBackups drops the oldest backups of a group.
func (b *shelf) trimBackups(ctx context.Context, group string) error {
	rows, err := b.store.List(ctx, group)
	if err != nil {
		return switchboard.Unavailable("the backups cannot be read", err)
	}
	at := func(v store.NamedValue) time.Time {
		var s backup
		_ = json.Unmarshal(v.Data, &s) // one that cannot be read is the oldest
		return s.When
	}
	slices.SortFunc(rows, func(a, b store.NamedValue) int { return at(b).Compare(at(a)) })
	for _, row := range rows[min(len(rows), maxBackups):] {
		if _, err := b.store.Apply(ctx, store.Change{Group: group, Writes: []store.Write{{Name: row.Name, Was: row.Version}}}); err != nil {
			return switchboard.Unavailable("an old backup cannot be dropped", err)
		}
	}
	return nil
}

// backup returns the backup of a proposal.
func (b *shelf) backup(ctx context.Context, p *KeptProposal) (*backup, error) {
	saved := &backup{}
	v, err := b.value(ctx, backupsOf(p.Tenant), p.ID, saved)
	if err == nil && v == 0 {
		err = refuse(switchboard.CodeProposal, "the files from before are not kept any more: the last %d backups are", maxBackups)
	}
	return saved, err
}
