package ownfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// ownerOnly returns the security of what this package makes: the user of this process may do everything, everybody else nothing. Nothing
// is inherited from the folder above, and what is made inside a folder inherits it.
var ownerOnly = sync.OnceValues(func() (*windows.SecurityAttributes, error) {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return nil, fmt.Errorf("the user of this process: %w", err)
	}
	sid := user.User.Sid.String()
	descriptor, err := windows.SecurityDescriptorFromString("D:P(A;OICI;FA;;;" + sid + ")")
	if err != nil {
		return nil, fmt.Errorf("an access list for %s: %w", sid, err)
	}
	return &windows.SecurityAttributes{Length: uint32(unsafe.Sizeof(windows.SecurityAttributes{})), SecurityDescriptor: descriptor}, nil
})

// Open opens a file as os.OpenFile does. If flag makes it make the file, only its owner may use the file. The open file can be
// removed and replaced, as on other systems.
func Open(path string, flag int) (*os.File, error) {
	handle, err := open(path, flag)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(handle), path), nil
}

func open(path string, flag int) (windows.Handle, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return windows.InvalidHandle, err
	}
	security, err := ownerOnly()
	if err != nil {
		return windows.InvalidHandle, err
	}
	access := uint32(windows.GENERIC_READ)
	switch {
	case flag&os.O_RDWR != 0:
		access = windows.GENERIC_READ | windows.GENERIC_WRITE
	case flag&os.O_WRONLY != 0:
		access = windows.GENERIC_WRITE
	}
	if flag&os.O_APPEND != 0 { // without the right to write elsewhere, every write goes to the end
		access = access&^windows.GENERIC_WRITE | windows.FILE_APPEND_DATA | windows.FILE_WRITE_ATTRIBUTES | windows.SYNCHRONIZE
	}
	how := uint32(windows.OPEN_EXISTING)
	switch {
	case flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		how = windows.CREATE_NEW
	case flag&(os.O_CREATE|os.O_TRUNC) == os.O_CREATE|os.O_TRUNC:
		how = windows.CREATE_ALWAYS
	case flag&os.O_CREATE != 0:
		how = windows.OPEN_ALWAYS
	case flag&os.O_TRUNC != 0:
		how = windows.TRUNCATE_EXISTING
	}
	const share = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	return windows.CreateFile(name, access, share, security, how, windows.FILE_ATTRIBUTE_NORMAL, 0)
}

// MakeFolder makes a folder that only its owner may use. The folder must not exist.
func MakeFolder(path string) error {
	name, err := windows.UTF16PtrFromString(path)
	if err == nil {
		var security *windows.SecurityAttributes
		if security, err = ownerOnly(); err == nil {
			err = windows.CreateDirectory(name, security)
		}
	}
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return nil
}

// The rights that let a user read a file, or change it or its rights.
const (
	readRights  = windows.GENERIC_READ | windows.GENERIC_ALL | windows.FILE_READ_DATA
	writeRights = windows.GENERIC_WRITE | windows.GENERIC_ALL | windows.FILE_WRITE_DATA | windows.FILE_APPEND_DATA | windows.DELETE | windows.WRITE_DAC | windows.WRITE_OWNER
)

// Check refuses a file or folder that other users may read or write. info describes the file at path. The
// error gives the reason, and a command that corrects it with the name that the reader knows the file by. The system and the administrators
// of the machine do not count, since they can take every file. A file that is not in a file system of the machine passes.
func Check(shown, path string, info fs.FileInfo) error {
	if _, ok := info.Sys().(*syscall.Win32FileAttributeData); !ok { // a file in memory
		return nil
	}
	remedy := `icacls "` + shown + `" /inheritance:r /grant:r "%USERNAME%:F"`
	if info.IsDir() {
		remedy = `icacls "` + shown + `" /inheritance:r /grant:r "%USERNAME%:(OI)(CI)F"`
	}
	descriptor, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		return fmt.Errorf("its access list cannot be read: %w", err)
	}
	list, _, err := descriptor.DACL()
	if err != nil || list == nil {
		return mayError("write", "it has no access list", remedy)
	}
	for i := range uint32(list.AceCount) {
		var entry *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(list, i, &entry); err != nil {
			return fmt.Errorf("its access list cannot be read: %w", err)
		}
		if entry.Header.AceType == windows.ACCESS_DENIED_ACE_TYPE || entry.Header.AceFlags&windows.INHERIT_ONLY_ACE != 0 {
			continue
		}
		if entry.Header.AceType != windows.ACCESS_ALLOWED_ACE_TYPE {
			return mayError("read", "an entry of its access list is of a kind that Switchboard does not know", remedy)
		}
		who := (*windows.SID)(unsafe.Pointer(&entry.SidStart))
		if isTrusted(who) {
			continue
		}
		switch {
		case entry.Mask&writeRights != 0:
			return mayError("write", "its access list has "+accountName(who), remedy)
		case entry.Mask&readRights != 0:
			return mayError("read", "its access list has "+accountName(who), remedy)
		}
	}
	return nil
}

// isTrusted reports whether who is the user of this process, the system, an administrator, or the owner of the file.
func isTrusted(who *windows.SID) bool {
	for _, kind := range []windows.WELL_KNOWN_SID_TYPE{windows.WinLocalSystemSid, windows.WinBuiltinAdministratorsSid, windows.WinCreatorOwnerRightsSid} {
		if who.IsWellKnown(kind) {
			return true
		}
	}
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	return err == nil && who.Equals(user.User.Sid)
}

// accountName returns the name of an account, for people.
func accountName(who *windows.SID) string {
	if account, domain, _, err := who.LookupAccount(""); err == nil {
		return domain + `\` + account
	}
	return who.String()
}

// lockedByte is the byte that a lock covers. Windows lets no other process read or write a locked byte, so it lies where no file has any.
var lockedByte = windows.Overlapped{Offset: math.MaxUint32 - 1, OffsetHigh: math.MaxInt32}

// TryLock takes the lock of the file, and reports whether it did. No other process and no other open file then gets it. Closing the
// file and the end of the process release it. The lock does not keep anybody from reading or writing.
func TryLock(f *os.File) (bool, error) {
	return tryLock(f, windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY)
}

// TryLockShared is TryLock for a lock that several may have at once, while no one has that of TryLock.
func TryLockShared(f *os.File) (bool, error) { return tryLock(f, windows.LOCKFILE_FAIL_IMMEDIATELY) }

func tryLock(f *os.File, how uint32) (bool, error) {
	at := lockedByte
	err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

// Lock is TryLock, but waits until it has the lock.
func Lock(f *os.File) error {
	at := lockedByte
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, &at)
}

// Unlock releases the lock of the file.
func Unlock(f *os.File) error {
	at := lockedByte
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &at)
}

// SyncFolder does nothing: Windows cannot sync a folder, and its file systems log changes of names.
func SyncFolder(string) error { return nil }
