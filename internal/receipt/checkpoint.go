package receipt

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Checkpoint records the digest of one entry of a chain. If it is kept in a place that the writer
// of the chain cannot change, it shows whether the chain was cut off or signed anew.
type Checkpoint struct {
	V         int                `json:"v"`
	Node      string             `json:"node"`
	Seq       uint64             `json:"seq"`
	Digest    switchboard.Digest `json:"digest"` // of the entry
	Time      time.Time          `json:"time"`
	Key       string             `json:"key"`
	Signature string             `json:"signature"` // over the line without the signature
}

// Line returns the checkpoint in canonical form.
func (c *Checkpoint) Line() []byte { return c.append(nil, true) }

func (c *Checkpoint) append(b []byte, signature bool) []byte {
	w := canonical.NewWriter(b)
	w.BeginObject()
	writeText(&w, "digest", string(c.Digest))
	writeText(&w, "key", c.Key)
	writeText(&w, "node", c.Node)
	w.Name("seq")
	w.Uint(c.Seq)
	if signature {
		writeText(&w, "signature", c.Signature)
	}
	writeTime(&w, "time", c.Time)
	w.Name("v")
	w.Int(version)
	w.EndObject()
	return w.Bytes()
}

// Check checks the form of the checkpoint and its own signature.
func (c *Checkpoint) Check() error { return errors.Join(CheckNode(c.Node), c.verifySignature()) }

// verifySignature checks the checkpoint's own signature.
func (c *Checkpoint) verifySignature() error {
	key, err := parsePublic(c.Key)
	if err != nil {
		return err
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(c.Signature)
	if err != nil || !ed25519.Verify(key, c.append(nil, false), signature) {
		return errors.New("its signature does not match its content")
	}
	return nil
}

// ReadCheckpoints reads checkpoints, one a line, as an Anchor gets them. It refuses other lines,
// and checkpoints with a wrong signature.
func ReadCheckpoints(r io.Reader) (all []Checkpoint, err error) {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var c Checkpoint
		if err := json.Unmarshal(lines.Bytes(), &c, json.RejectUnknownMembers(true)); err != nil {
			return nil, fmt.Errorf("checkpoint in line %d: %w", n, err)
		}
		if err := c.Check(); err != nil {
			return nil, fmt.Errorf("checkpoint in line %d: %w", n, err)
		}
		all = append(all, c)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	return all, nil
}

// A checkpointer makes the checkpoints of a chain.
type checkpointer struct {
	options *ChainOptions
	last    Checkpoint // belongs to the holder of Chain.writeRight, as kept does
	kept    uint64     // the entry of the last checkpoint that is in the anchor or, without one, in the log at its usual level

	mu    sync.Mutex
	fault error // why the last checkpoint is not in the anchor
}

// due reports whether enough entries up to seq were written since the last checkpoint to make one.
func (c *checkpointer) due(seq uint64) bool {
	return seq-c.last.Seq >= uint64(c.options.CheckpointEvery)
}

// recordDue makes a checkpoint of the last entry that w has written, if one is due.
func (c *checkpointer) recordDue(w *chainWriter) {
	if c.due(w.seq) {
		c.record(w, slog.LevelDebug) // there may be many in a minute
	}
}

// recordNew makes a checkpoint of the last entry that w has written, unless one is kept.
func (c *checkpointer) recordNew(w *chainWriter) {
	if w.seq > c.kept {
		c.record(w, slog.LevelInfo)
	}
}

// record makes a checkpoint of the last entry that w has written. level is that of its line in the log, if the log is
// where it is kept.
func (c *checkpointer) record(w *chainWriter, level slog.Level) {
	p := Checkpoint{V: version, Node: w.node, Seq: w.seq, Digest: w.prev, Time: time.Now().UTC(), Key: w.signer.public}
	p.Signature = base64.RawURLEncoding.EncodeToString(ed25519.Sign(w.signer.private, p.append(nil, false)))
	c.last = p
	if c.options.Anchor != nil {
		level = slog.LevelDebug
	} else if level >= slog.LevelInfo {
		c.kept = w.seq
	}
	line := p.Line()
	c.options.Log.LogAttrs(context.Background(), level, "checkpoint of receipts", slog.String("checkpoint", string(line)))
	if c.options.Anchor == nil {
		return
	}
	_, err := c.options.Anchor.Write(append(line, '\n'))
	if err != nil {
		c.options.Log.Error("a checkpoint of receipts is not in its anchor", "node", p.Node, "seq", p.Seq, "err", err)
	}
	if err == nil {
		c.kept = p.Seq
	}
	c.mu.Lock()
	c.fault = err
	c.mu.Unlock()
}

// anchorFault returns why the last checkpoint is not in the anchor.
func (c *checkpointer) anchorFault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

// OpenAnchor opens a file and appends checkpoints to it. Keep the file in a place that a process
// with access to the store cannot write.
func OpenAnchor(name string) (io.WriteCloser, error) {
	f, err := ownfile.Open(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("anchor of receipts: %w", err)
	}
	return syncedFile{f}, nil
}

type syncedFile struct{ *os.File }

// Write implements io.Writer.
func (d syncedFile) Write(p []byte) (int, error) {
	n, err := d.File.Write(p)
	if err == nil {
		err = d.Sync()
	}
	return n, err
}
