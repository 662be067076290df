package heap

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapProgram removes the pages of the program's file from the memory of this process. A start touches most of the file
// once: the code that initializes each package, and the tables of the garbage collector. The pages stay in the system's
// cache of files. The next use of a page maps it again within a microsecond, and some pages around it: not 2 MiB, where
// the cache has large pages.
func unmapProgram() {
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return // the pages stay
	}
	for _, m := range readOnlyMappings(string(smaps)) {
		for _, advice := range []uintptr{unix.MADV_NOHUGEPAGE, unix.MADV_DONTNEED} {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.first, m.end-m.first, advice)
		}
	}
}

// A mapping is a range of addresses.
type mapping struct{ first, end uintptr }

// readOnlyMappings returns the mappings of files that this process reads or executes and does not write. A mapping is
// omitted if a page of it differs from the file: a debugger or a probe has changed the code, and the change would be lost.
// smaps is the content of the file of this name in /proc.
func readOnlyMappings(smaps string) (all []mapping) {
	var m mapping // the present one; zero if it is not to be returned
	for line := range strings.Lines(smaps) {
		f := strings.Fields(line)
		switch first, end, ok := strings.Cut(f[0], "-"); {
		case ok:
			m = mapping{}
			if len(f) >= 6 && strings.HasPrefix(f[5], "/") && (f[1] == "r-xp" || f[1] == "r--p") {
				m = mapping{parseAddress(first), parseAddress(end)}
			}
		case f[0] == "Anonymous:" && f[1] == "0" && m.first < m.end:
			all = append(all, m)
		}
	}
	return all
}

// parseAddress returns the address that s spells, or 0.
func parseAddress(s string) uintptr {
	n, err := strconv.ParseUint(s, 16, strconv.IntSize)
	if err != nil {
		return 0
	}
	return uintptr(n)
}
