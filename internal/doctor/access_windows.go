package doctor

import (
	"fmt"
	"os"
)

// mayWrite returns nil unless the file is marked as read-only: on Windows only a try shows more, and doctor tries nothing.
func mayWrite(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() && info.Mode().Perm()&0o200 == 0 {
		err = fmt.Errorf("%s is read-only", path)
	}
	return err
}
