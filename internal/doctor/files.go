package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/serving"
)

// A fileCheck examines files and their rights.
type fileCheck struct{ *examination }

// Bounds of the walk through the data folder.
const (
	maxWalked = 4_000 // files and folders
	maxDepth  = 6
)

// checkFiles looks at the data folder, at what is in it, and at the place of the log.
func (x fileCheck) checkFiles() {
	defer x.begin("the files")()
	x.checkLogTarget()
	if x.Data == "" {
		return
	}
	info, err := os.Stat(x.Data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		above := existingFolder(x.Data)
		if err := mayWrite(above); err != nil {
			x.add(Diagnosis{
				Area: Files, Subject: x.Data, State: Wrong, Cause: "file-rights", What: fmt.Sprintf("the data folder cannot be made: %s may not be written by this user", above),
				Remedy: "let the user of Switchboard write there, or name another folder with --data", Command: commandLine("chmod", "u+wx", above),
			})
			return
		}
		x.well(Files, x.Data, "the data folder is made when something is first served")
		return
	case err != nil:
		x.add(Diagnosis{Area: Files, Subject: x.Data, State: Wrong, Cause: "file-rights", What: "the data folder cannot be looked at: " + errorText(err), Remedy: "let the user of Switchboard use the folders above it (chmod u+x)"})
		return
	case !info.IsDir():
		x.add(Diagnosis{Area: Files, Subject: x.Data, State: Wrong, Cause: "no-folder", What: "the data folder is a file", Remedy: "move the file away; the folder is made when something is first served", Command: commandLine("mv", x.Data, x.Data+".old")})
		return
	}
	if err := mayWrite(x.Data); err != nil {
		x.add(Diagnosis{Area: Files, Subject: x.Data, State: Wrong, Cause: "file-rights", What: "the data folder may not be written by this user", Remedy: "let the user of Switchboard write there", Command: commandLine("chmod", "u+rwx", x.Data)})
		return
	}
	if n := x.checkDataFolder(); n == 0 {
		x.well(Files, x.Data, "the data folder is there, and its files are for this user only")
	}
}

// checkDataFolder looks at each file in the data folder, and returns how many things are wrong. Each of them may hold what callers sent.
func (x fileCheck) checkDataFolder() (wrong int) {
	now, seen := time.Now(), 0
	err := filepath.WalkDir(x.Data, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
			return nil
		}
		if err != nil {
			wrong++
			x.add(Diagnosis{Area: Files, Subject: name, State: Wrong, Cause: "file-rights", What: "it cannot be read: " + errorText(err), Remedy: "let the user of Switchboard use it", Command: commandLine("chmod", "u+rwX", name)})
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if seen++; seen > maxWalked {
			return fs.SkipAll
		}
		if d.IsDir() && strings.Count(strings.TrimPrefix(name, x.Data), string(filepath.Separator)) >= maxDepth {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil || !d.IsDir() && !info.Mode().IsRegular() {
			return nil //nolint:nilerr // it was removed meanwhile, or is a socket or a link
		}
		if f := x.checkEntry(name, info, now); f != nil {
			wrong++
			x.add(*f)
		}
		return nil
	})
	if err != nil {
		return wrong + 1
	}
	if f := x.checkRows(); f != nil && wrong == 0 {
		wrong++
		x.add(*f)
	}
	return wrong
}

// checkEntry looks at the rights and the time of one file or folder; nil if they are well. Other users may list a folder: its files are for the
// owner alone.
func (x fileCheck) checkEntry(name string, info fs.FileInfo, now time.Time) *Diagnosis {
	mode := "600"
	if info.IsDir() {
		mode = "700"
	}
	if err := ownfile.Check(name, name, info); err != nil && (!info.IsDir() || info.Mode().Perm()&0o022 != 0) {
		what, _, _ := strings.Cut(err.Error(), "; ")
		return &Diagnosis{Area: Files, Subject: name, State: Wrong, Cause: "file-rights", What: what, Remedy: "let only its owner use it", Command: commandLine("chmod", mode, name)}
	}
	if late := info.ModTime().Sub(now); late > maxSkew && !info.IsDir() {
		return &Diagnosis{
			Area: Clock, Subject: name, State: Wrong, Cause: "time-to-come",
			What:    fmt.Sprintf("it was changed %s in the future (%s): this machine's clock was wrong then, or is wrong now", roundTime(late), info.ModTime().Format(time.DateTime)),
			Remedy:  "compare the clock with the right time (date). If it is right now, give the file the present time",
			Command: commandLine("touch", name),
		}
	}
	return nil
}

// checkRows looks at operator.json, where clients find the processes that serve.
func (x fileCheck) checkRows() *Diagnosis {
	if _, err := serving.Rows(x.Data); err != nil {
		file := filepath.Join(x.Data, serving.File)
		return &Diagnosis{
			Area: Files, Subject: file, State: Wrong, Cause: "damaged", What: errorText(err),
			Remedy: "remove it: each process that serves writes its row when it starts", Command: commandLine("rm", "-f", file),
		}
	}
	return nil
}

// checkLogTarget looks at the file that the log goes to.
func (x fileCheck) checkLogTarget() {
	if x.cfg == nil || x.cfg.Log.To == "" {
		return
	}
	file := x.cfg.Log.To
	folder := filepath.Dir(file)
	info, err := os.Stat(folder)
	switch {
	case err != nil:
		x.add(Diagnosis{Area: Files, Subject: file, State: Wrong, Cause: "no-folder", What: "the log cannot be written: " + errorText(err), Remedy: `make its folder, or correct log: {to: …}`, Command: commandLine("mkdir", "-p", folder)})
	case !info.IsDir():
		x.add(Diagnosis{Area: Files, Subject: file, State: Wrong, Cause: "no-folder", What: "the log cannot be written: " + folder + " is a file", Remedy: `correct log: {to: …}`})
	case mayWrite(folder) != nil && mayWrite(file) != nil:
		x.add(Diagnosis{Area: Files, Subject: file, State: Wrong, Cause: "file-rights", What: "the log may not be written by this user", Remedy: `let the user of Switchboard write there, or correct log: {to: …}`, Command: commandLine("chmod", "u+wx", folder)})
	default:
		x.well(Files, file, "the log goes there")
	}
}

// existingFolder returns the nearest folder above path that exists.
func existingFolder(path string) string {
	for {
		above := filepath.Dir(path)
		if _, err := os.Stat(above); err == nil || above == path {
			return above
		}
		path = above
	}
}

// errorText returns the text of an error without the operation and the path, which the reader knows.
func errorText(err error) string {
	if wrapped, ok := errors.AsType[*fs.PathError](err); ok {
		err = wrapped.Err
	}
	return err.Error()
}
