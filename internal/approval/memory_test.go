package approval_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var pendingRequests = flag.Int("pending-requests", 1000, "how many `requests` TestPendingRequestsTakeLittleMemory makes; 10000 is what is promised")

// heapInUse returns the bytes of the heap that are in use.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// 10,000 requests of 20 tenants, with 512 bytes of arguments each, take less than 32 MiB, also in a store that is itself in memory.
func TestPendingRequestsTakeLittleMemory(t *testing.T) {
	folder := t.TempDir()
	file, err := store.OpenFile(filepath.Join(folder, "store.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]store.Store{"memory": store.NewMemory(), "file": file} {
		k := newKeeper(t, s, nil)
		before := heapInUse()
		for i := range *pendingRequests {
			tenant := i / approval.MaxOfTenant
			_, made, err := k.Ask(t.Context(), &approval.Request{
				Kind: approval.ForCall, Until: time.Now().Add(approval.MaxUntil),
				Asker:  approval.Asker{Tenant: switchboard.TenantID(fmt.Sprint("tenant-", tenant)), Principal: fmt.Sprint("agent-", i/approval.MaxOfPrincipal), Auth: switchboard.AuthAPIKey, Task: "triage"},
				Target: approval.Target{Method: "tools/call", Server: "mail", Tool: "send", Arguments: fmt.Sprint("sha256:", i), Definition: "sha256:1"},
			}, approval.KeptCall{Params: []byte(`{"name":"send","arguments":{"text":"` + strings.Repeat("a", 512) + `"}}`)})
			if err != nil || !made {
				t.Fatalf("request %d: %v, %v", i, made, err)
			}
		}
		used := int64(heapInUse()) - int64(before)
		size := int64(0)
		for _, part := range []string{"store.db", "store.db-wal"} {
			if info, err := os.Stat(filepath.Join(folder, part)); err == nil && name == "file" {
				size += info.Size()
			}
		}
		t.Logf("%s: %d pending requests take %.1f MiB of the heap, and %.1f MiB of the disk", name, *pendingRequests, float64(used)/(1<<20), float64(size)/(1<<20))
		if most := int64(*pendingRequests) * (32 << 20) / 10_000; used > most {
			t.Errorf("%s: %d pending requests take %d bytes of the heap, at most %d", name, *pendingRequests, used, most)
		}
		runtime.KeepAlive(k)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
