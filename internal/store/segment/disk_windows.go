package segment

import (
	"os"

	"golang.org/x/sys/windows"
)

func (f osFile) IsAt(path string) bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(own, there)
}

func (f osFile) HasName() bool {
	var own windows.ByHandleFileInformation
	return windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &own) == nil && own.NumberOfLinks > 0
}
