package app

import "path/filepath"

// packagesName is the folder of installed packages, in the data folder. A program sees its own package there, and nothing else.
const packagesName = "packages"

// packagesFolder returns the folder that packages are installed below, in the data folder; "" if there is none.
func packagesFolder(data string) string {
	if data == "" {
		return ""
	}
	abs, err := filepath.Abs(data)
	if err != nil {
		return ""
	}
	return filepath.Join(abs, packagesName)
}
