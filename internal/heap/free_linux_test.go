package heap

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAnUnmappedProgramTakesLessMemoryAndRuns(t *testing.T) {
	before := residentFilePages(t)
	unmapProgram()
	after := residentFilePages(t)
	if after >= before {
		t.Errorf("%d KiB of files are resident after unmapping, %d before", after, before)
	}
}

func TestAnUnmappedProgramIsNotMappedByLargePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		return // this system has none
	}
	unmapProgram()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(smaps), " r-xp ")
	_, flags, _ := strings.Cut(program, "VmFlags:")
	flags, _, _ = strings.Cut(flags, "\n")
	if !slices.Contains(strings.Fields(flags), "nh") { // see proc_pid_smaps(5)
		t.Errorf("the flags of the program's code are %s", flags)
	}
}

func TestChangedPagesOfAFileStayMapped(t *testing.T) {
	name := filepath.Join(t.TempDir(), "code")
	page := os.Getpagesize()
	if err := os.WriteFile(name, make([]byte, 2*page), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read from
	m, err := unix.Mmap(int(f.Fd()), 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m) //nolint:errcheck // the process ends
	m[page] = 0xcc       // as a debugger sets a breakpoint
	if err := unix.Mprotect(m, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	unmapProgram()
	if m[page] != 0xcc {
		t.Error("the change is lost")
	}
}

func TestOnlyUnchangedReadOnlyFilesAreUnmapped(t *testing.T) {
	const smaps = `00400000-01ad4000 r-xp 00000000 fe:00 123 /usr/bin/switchboard
Rss:                4000 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
01ad4000-03f77000 r--p 016d4000 fe:00 123 /usr/bin/switch board (deleted)
Anonymous:             0 kB
03f77000-04188000 rw-p 03b77000 fe:00 123 /usr/bin/switchboard
Anonymous:             0 kB
04188000-061dd000 r--p 00000000 00:00 0
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 9 /usr/lib/changed.so
Anonymous:             4 kB
7f0000001000-7f0000002000 r--s 00000000 fe:00 9 /var/store.db-shm
Anonymous:             0 kB
7f0000002000-7f0000003000 r-xp 00000000 00:00 0 [vdso]
Anonymous:             0 kB
`
	want := []mapping{{0x400000, 0x1ad4000}, {0x1ad4000, 0x3f77000}}
	if got := readOnlyMappings(smaps); !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

// residentFilePages returns how many KiB of files are in the memory of this process.
func residentFilePages(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
