package app

import (
	"os"
	"path/filepath"
)

// packagesName is the folder of installed packages, in the data folder. A program sees its own package there, and nothing else.
const packagesName = "packages"

// packagesFolder returns the folder that packages are installed below: in the data folder, or among the caches of the user if there is none.
func packagesFolder(data string) string {
	if data != "" {
		if abs, err := filepath.Abs(data); err == nil {
			return filepath.Join(abs, packagesName)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "switchboard", packagesName)
}
