package segment

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData makes the data of f durable. It leaves out times, which no one needs after a crash.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err != unix.EINTR {
			return err
		}
	}
}
