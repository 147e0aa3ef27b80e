package devpg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// owner is the user who owns the processes and the files of the server.
type owner struct {
	uid, gid uint32
	name     string
	drop     bool // the caller is root, and the server runs as another user
}

// chooseOwner returns the caller. For root it returns the owner of the existing data, else
// postgres, else nobody. data is nil if there are none.
func chooseOwner(data fs.FileInfo) (owner, error) {
	if os.Geteuid() != 0 {
		return owner{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid()), name: "you"}, nil
	}
	if data != nil {
		if st, ok := data.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			return owner{uid: st.Uid, gid: st.Gid, name: "user " + strconv.Itoa(int(st.Uid)), drop: true}, nil
		}
	}
	for _, name := range []string{"postgres", "_postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.Atoi(u.Uid) // on Unix these are numbers
			gid, _ := strconv.Atoi(u.Gid)
			return owner{uid: uint32(uid), gid: uint32(gid), name: "user " + name, drop: true}, nil
		}
	}
	return owner{}, errors.New("running as root: Postgres refuses that, and this machine has neither a user postgres nor nobody: " +
		"add one, or run as another user")
}

// credential returns the credential of child processes; nil means the credential of
// the caller.
func (o owner) credential() *syscall.Credential {
	if !o.drop {
		return nil
	}
	return &syscall.Credential{Uid: o.uid, Gid: o.gid}
}

// give makes dir, which is in a directory, a directory of the owner and closes it to all other users.
func (o owner) give(in *os.Root, dir string) error {
	if o.drop {
		if err := in.Lchown(dir, int(o.uid), int(o.gid)); err != nil {
			return fmt.Errorf("giving %s to %s: %w", filepath.Join(in.Name(), dir), o.name, err)
		}
	}
	if err := in.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("closing %s to other users: %w", filepath.Join(in.Name(), dir), err)
	}
	return nil
}
