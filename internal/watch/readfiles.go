package watch

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"
)

// settleTime is how old the time of a file must be, so that a later write cannot leave the same time: some file systems count in steps of two seconds.
const settleTime = 3 * time.Second

// ReadFiles are what the files and folders of one load were before they were read. It is safe for concurrent use.
type ReadFiles struct {
	files *Files
	mu    sync.Mutex
	seen  map[string]seenFile // by absolute path
}

// A seenFile is what a file was.
type seenFile struct {
	look  fileLook
	stamp fileStamp
}

// A fileLook is what the file system says of a file without its content. Two looks are compared with same.
type fileLook struct {
	info    fs.FileInfo // nil if there is no such file
	settled bool        // a later write changes it
}

func lookAt(path string) fileLook {
	info, err := os.Stat(path)
	if err != nil {
		return fileLook{nil, errors.Is(err, fs.ErrNotExist)}
	}
	return fileLook{info, time.Since(info.ModTime()) >= settleTime}
}

// same reports whether both are of one file that was not written in between.
func (l fileLook) same(now fileLook) bool {
	switch {
	case !l.settled || !now.settled:
		return false
	case l.info == nil || now.info == nil:
		return l.info == nil && now.info == nil
	}
	return os.SameFile(l.info, now.info) && l.info.Size() == now.info.Size() && l.info.Mode() == now.info.Mode() && l.info.ModTime().Equal(now.info.ModTime())
}

// Unchanged reports whether all files are as they were. It reads only those that have another size or time than before, or so young a time that a write
// may have left it as it was. A nil ReadFiles, or one without files, is never unchanged.
func (r *ReadFiles) Unchanged() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) == 0 {
		return false
	}
	r.files.enterStartFolder()
	for path, was := range r.seen {
		now := lookAt(path)
		if was.look.same(now) {
			continue
		}
		if stampFile(path) != was.stamp {
			return false
		}
		r.seen[path] = seenFile{now, was.stamp}
	}
	return true
}

// Renew takes what a later load has read, which meant the same.
func (r *ReadFiles) Renew(later *ReadFiles) {
	seen := later.all()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = seen
}

// all returns what was read, by its absolute path.
func (r *ReadFiles) all() map[string]seenFile {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.seen)
}
