package large

import (
	"context"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// historySeries is how many pairs of tenant and server a step keeps.
const historySeries = 64

// writeHistory writes the history of metrics that a busy fortnight before now leaves. A history that is filled by calls would take that fortnight, so
// this writes blocks in the format of internal/history/block.go.
func (i *Installation) writeHistory(ctx context.Context, st store.Store, now time.Time) error {
	for _, scale := range []struct {
		name       string
		each, kept time.Duration
		steps      int
	}{{"10s", 10 * time.Second, time.Hour, 30}, {"1m", time.Minute, 24 * time.Hour, 30}, {"15m", 15 * time.Minute, 14 * 24 * time.Hour, 24}} {
		span := time.Duration(scale.steps) * scale.each
		for start := now.Truncate(span).Add(-scale.kept); start.Before(now); start = start.Add(span) {
			var writes []store.Write
			writes = append(writes, store.Write{Name: strconv.FormatInt(start.Unix(), 10), Was: store.Any, Data: i.historyBlock(scale.steps, int(min(int64(scale.steps), int64(now.Sub(start)/scale.each))))})
			if _, err := st.Apply(ctx, store.Change{Group: "history/" + scale.name, Writes: writes}); err != nil {
				return err
			}
		}
	}
	return nil
}

// historyBlock returns a block with the first done of so many steps.
func (i *Installation) historyBlock(steps, done int) []byte {
	b := []byte{1, 0} // the format, and no writers
	series := min(historySeries, i.Tenants)
	b = binary.AppendUvarint(b, uint64(series)) //nolint:gosec // it is not negative
	for t := range series {
		for _, name := range []string{TenantID(t), ServerID(i.UsedServers(t)[0])} {
			b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
		}
	}
	b = binary.AppendUvarint(b, uint64(min(steps, done))) //nolint:gosec // it is not negative
	for step := range min(steps, done) {
		b = binary.AppendUvarint(b, uint64(step))   //nolint:gosec // it is not negative
		b = binary.AppendUvarint(b, uint64(series)) //nolint:gosec // it is not negative
		for t := range series {
			r := spread(step*historySeries + t)
			b = binary.AppendUvarint(b, uint64(t))        //nolint:gosec // it is not negative
			b = binary.AppendUvarint(b, 0b0111_1111_0111) // the numbers that are not 0
			for n := range uint64(10) {
				b = binary.AppendUvarint(b, 1+r>>(n*6)%64)
			}
		}
	}
	return b
}
