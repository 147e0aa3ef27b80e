package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd/claim"
)

// lockRecord is the content of a lock file. It identifies the process that held the lock before, and shows whether that
// process has died on this host.
//
// A process that holds a lock file (flock) records itself in it: its incarnation, and the
// name of the file. A process that obtains the lock later reads that record. The kernel
// releases a lock only when the process that holds it has ended. So if the record names
// the locked file, the recorded process is dead.
//
// The name of a file is the boot id of the host, the device and the inode. predecessorOf
// ignores a record with another name. The names differ if
//
//   - the file was copied to another directory or host. The inode, the device or the boot
//     id differs. The process that wrote the record may be alive and hold the lock of the
//     original;
//   - the file is on a shared file system and another host wrote the record. The boot id
//     differs. The locks of the other host may not be visible here;
//   - the host was restarted. The boot id differs. The process is dead, but the lease of
//     its dispatcher ends soon enough.
//
// Containers and network namespaces of one host share the kernel, its locks and its boot
// id, so they need no special treatment.
type lockRecord struct {
	Lock        string `json:"lock"` // name of the file, see lockName
	Incarnation []byte `json:"incarnation"`
	// Hold is how long remote workers may continue jobs of the process after its death. The settings of its successor may differ.
	Hold time.Duration `json:"hold,omitempty"`
}

// maxRecord bounds what is read of a file.
const maxRecord = 4096

// bootIDFile contains the boot id of a Linux host.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// lockName identifies an open file on this host since its last start. It is empty where the
// system has no boot id.
func lockName(file *os.File) (string, error) {
	boot, err := os.ReadFile(bootIDFile)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("boot id of the host: %w", err)
	}
	return nameOn(strings.TrimSpace(string(boot)), file)
}

// nameOn is lockName for a host with the given boot id.
func nameOn(boot string, file *os.File) (string, error) {
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	s := info.Sys().(*syscall.Stat_t) // on each system on which the daemon runs
	return fmt.Sprintf("%s %d %d", boot, s.Dev, s.Ino), nil
}

// predecessorOf returns the record of the process that held the lock before. name is the
// name of the lock file. predecessorOf returns false if the file does not prove that there was
// such a process. The caller holds the lock.
func predecessorOf(file *os.File, name string) (r lockRecord, known bool) {
	err := json.NewDecoder(io.NewSectionReader(file, 0, maxRecord)).Decode(&r)
	return r, err == nil && name != "" && r.Lock == name && len(r.Incarnation) == len(claim.Incarnation{})
}

// recordHolder writes this process into the lock file that it names. The caller holds the
// lock. predecessorOf ignores an incomplete record.
func recordHolder(file *os.File, me lockRecord) error {
	text, err := json.Marshal(me)
	if err != nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.WriteAt(append(text, '\n'), 0)
	return err
}
