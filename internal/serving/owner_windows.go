package serving

import "io/fs"

// checkOwner refuses nothing: ownfile.Check compares the users on the access list of the file.
func checkOwner(fs.FileInfo) error { return nil }
