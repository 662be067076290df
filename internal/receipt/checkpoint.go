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
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Checkpoint says what stood in a chain at a time. Kept where nobody can get at it
// who can change the chain, it shows whether the chain was cut off, or signed anew.
type Checkpoint struct {
	V         int                `json:"v"`
	Node      string             `json:"node"`
	Seq       uint64             `json:"seq"`
	Digest    switchboard.Digest `json:"digest"` // of the entry
	Time      time.Time          `json:"time"`
	Key       string             `json:"key"`
	Signature string             `json:"signature"` // over the line without it
}

// Line returns the checkpoint in canonical form.
func (c *Checkpoint) Line() []byte { return c.append(nil, true) }

func (c *Checkpoint) append(b []byte, signature bool) []byte {
	b = member(append(b, '{'), "digest", string(c.Digest))
	b = member(b, "key", c.Key)
	b = member(b, "node", c.Node)
	b = number(b, "seq", c.Seq)
	if signature {
		b = member(b, "signature", c.Signature)
	}
	b = instant(b, "time", c.Time)
	return append(strconv.AppendInt(append(b, `"v":`...), version, 10), '}')
}

// verify reports what is wrong with the checkpoint's own signature.
func (c *Checkpoint) verify() error {
	key, err := parsePublic(c.Key)
	if err != nil {
		return err
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(c.Signature)
	if err != nil || !ed25519.Verify(key, c.append(nil, false), signature) {
		return errors.New("its signature is not of what it says")
	}
	return nil
}

// ReadCheckpoints reads lines of checkpoints, as an Anchor gets them. It refuses what
// is none, and those whose own signature is wrong.
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
		if err := errors.Join(CheckNode(c.Node), c.verify()); err != nil {
			return nil, fmt.Errorf("checkpoint in line %d: %w", n, err)
		}
		all = append(all, c)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	return all, nil
}

// pin makes a checkpoint of the last entry, where there is reason to.
func (b *Book) pin(reason bool) {
	if !reason {
		return
	}
	c := Checkpoint{V: version, Node: b.o.Node, Seq: b.seq, Digest: b.prev, Time: time.Now().UTC(), Key: b.signer.public}
	c.Signature = base64.RawURLEncoding.EncodeToString(ed25519.Sign(b.signer.private, c.append(nil, false)))
	b.checkpoint = c
	line := c.Line()
	b.o.Log.LogAttrs(context.Background(), slog.LevelDebug, "checkpoint of receipts", slog.String("checkpoint", string(line)))
	if b.o.Anchor == nil {
		return
	}
	_, err := b.o.Anchor.Write(append(line, '\n'))
	if err != nil {
		b.o.Log.Error("a checkpoint of receipts is not in its anchor", "node", c.Node, "seq", c.Seq, "err", err)
	}
	b.mu.Lock()
	b.anchor = err
	b.mu.Unlock()
}

// OpenAnchor opens a file that takes checkpoints, and appends to it. It belongs
// where nobody can write who can write the store.
func OpenAnchor(name string) (io.WriteCloser, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("anchor of receipts: %w", err)
	}
	return durable{f}, nil
}

type durable struct{ *os.File }

// Write implements io.Writer.
func (d durable) Write(p []byte) (int, error) {
	n, err := d.File.Write(p)
	if err == nil {
		err = d.Sync()
	}
	return n, err
}
