package npm

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of the folder of an installed package.
const (
	maxFiles       = 200_000
	maxFolderBytes = 4 << 30
)

// DigestFolder returns the digest of all files below a folder: their paths, contents, and whether they can be executed. A link counts by where it leads, which must be
// within the folder. The error says which file cannot be read, or which limit the folder is over.
func DigestFolder(dir string) (switchboard.Digest, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }() // it was only read from
	sum, files, left := sha256.New(), 0, int64(maxFolderBytes)
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if files++; files > maxFiles {
			return fmt.Errorf("it has more than %d files", maxFiles)
		}
		switch {
		case e.IsDir():
			_, err = fmt.Fprintf(sum, "folder %q\n", name)
		case e.Type()&fs.ModeSymlink != 0:
			err = digestLink(sum, root, name)
		case e.Type().IsRegular():
			var n int64
			if n, err = digestFile(sum, root, name, left); n > left {
				return fmt.Errorf("it has more than %d bytes", int64(maxFolderBytes))
			}
			left -= n
		default:
			err = fmt.Errorf("%s is no file, folder or link", name)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return switchboard.Digest("sha256:" + hex.EncodeToString(sum.Sum(nil))), nil
}

// digestLink adds a link to the digest.
func digestLink(to io.Writer, root *os.Root, name string) error {
	target, err := root.Readlink(name)
	if err != nil {
		return err
	}
	if _, err := root.Stat(name); err != nil || filepath.IsAbs(target) {
		return fmt.Errorf("the link %s leads out of the folder, or nowhere", name)
	}
	_, err = fmt.Fprintf(to, "link %q %q\n", name, filepath.ToSlash(target))
	return err
}

// digestFile adds a file to the digest, and returns how many bytes it has: at most one more than most.
func digestFile(to io.Writer, root *os.Root, name string, most int64) (int64, error) {
	f, err := root.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // it was only read from
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	own := sha256.New()
	n, err := io.Copy(own, io.LimitReader(f, most+1))
	if err == nil && n != info.Size() && n <= most {
		err = errors.New(name + " changes while it is read")
	}
	if err == nil {
		_, err = fmt.Fprintf(to, "file %q %t %x\n", name, info.Mode()&0o100 != 0, own.Sum(nil))
	}
	return n, err
}
