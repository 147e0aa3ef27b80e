package devpg

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// owner is the user whose processes and files the server consists of.
type owner struct {
	uid, gid uint32
	name     string
	drop     bool // the caller is root and gives its rights away
}

// chooseOwner returns the caller, or, when that is root, the owner of the
// existing data, else postgres, else nobody.
func chooseOwner(data string) (owner, error) {
	if os.Geteuid() != 0 {
		return owner{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid()), name: "you"}, nil
	}
	if info, err := os.Stat(data); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			return owner{uid: st.Uid, gid: st.Gid, name: "user " + strconv.Itoa(int(st.Uid)), drop: true}, nil
		}
	}
	for _, name := range []string{"postgres", "_postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return owner{uid: uint32(uid), gid: uint32(gid), name: "user " + name, drop: true}, nil
		}
	}
	return owner{}, errors.New("running as root: Postgres refuses that, and this machine has neither a user postgres nor nobody: " +
		"add one, or run as another user")
}

// credential is what a child process must take on; nil keeps the caller's.
func (o owner) credential() *syscall.Credential {
	if !o.drop {
		return nil
	}
	return &syscall.Credential{Uid: o.uid, Gid: o.gid}
}

// give makes dir the owner's own and closes it to all other users.
func (o owner) give(dir string) error {
	if o.drop {
		if err := os.Chown(dir, int(o.uid), int(o.gid)); err != nil {
			return fmt.Errorf("giving %s to %s: %w", dir, o.name, err)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("closing %s to other users: %w", dir, err)
	}
	return nil
}

// canReach checks that the owner may enter every folder on the way to dir:
// root's home, for one, is closed to all other users.
func (o owner) canReach(dir string) error {
	if !o.drop {
		return nil
	}
	for d := dir; ; d = filepath.Dir(d) {
		info, err := os.Stat(d)
		if err != nil {
			return fmt.Errorf("directory of the private Postgres: %w", err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if ok && info.Mode().Perm()&o.enterBit(st) == 0 {
			return fmt.Errorf("the private Postgres runs as %s, who may not enter %s: "+
				"choose another directory, such as /var/lib/dispatcherd", o.name, d)
		}
		if d == filepath.Dir(d) {
			return nil
		}
	}
}

// enterBit is the permission that decides whether the owner may enter.
func (o owner) enterBit(st *syscall.Stat_t) os.FileMode {
	switch {
	case st.Uid == o.uid:
		return 0o100
	case st.Gid == o.gid:
		return 0o010
	}
	return 0o001
}
