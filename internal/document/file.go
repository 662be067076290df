package document

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// AnyFile accepts every file.
func AnyFile(fs.FileInfo) error { return nil }

// ReadBounded reads a regular file of at most limit bytes that passes check once it is open.
func ReadBounded(stat func() (fs.FileInfo, error), open func() (fs.File, error), limit int64, check func(fs.FileInfo) error) ([]byte, error) {
	// The type is checked before opening, because opening a pipe waits for a writer.
	if info, err := stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read from
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := check(info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("it is larger than %d bytes", limit)
	}
	return data, nil
}

// ErrorText returns the text of a reading error without the path, which the fault already names.
func ErrorText(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such file"
	case errors.Is(err, fs.ErrPermission):
		return "we may not read it"
	}
	return err.Error()
}
