package switchboard

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// CheckPrivate refuses a file or folder that other users may write, and one that belongs to us and that other users may
// read. The error gives the mode and the chmod that corrects it. A file that belongs to another user may be readable:
// the host of a container chooses the mode of the secrets that it provides.
func CheckPrivate(name string, info fs.FileInfo) error {
	mode := info.Mode().Perm()
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok { // a file in memory
		return nil
	}
	may := "read"
	switch ours := int(stat.Uid) == os.Getuid(); {
	case mode&0o002 != 0, ours && mode&0o020 != 0:
		may = "write"
	case !ours || mode&0o077 == 0:
		return nil
	}
	private := "600"
	if info.IsDir() {
		private = "700"
	}
	return fmt.Errorf("other users may %s it (its mode is %#o); chmod %s %s", may, mode, private, name)
}
