//go:build unix

package serving

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkOwner refuses a file of another user, because its writer chooses which process a client believes.
func checkOwner(info fs.FileInfo) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("it belongs to another user (uid %d)", stat.Uid)
	}
	return nil
}
