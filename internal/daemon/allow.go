package daemon

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os/user"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// AllowList decides which users of the machine, and which holders of tokens and certificates, may serve which types (--allow), and use
// jobs of which types over the API (--allow-api). Only the listed users of a listed type may
// use it. The zero value lists no type, so all users may use all types.
type AllowList struct {
	byType map[string][]string // uids (1001), effective gids (@50), tokens (token:gpu) and certificates (cert:gpu-1)
}

// anyOther is the entry for every type without an entry of its own.
const anyOther = "*"

// Set adds entries such as pdf=1001,@50. Semicolons separate entries. If the text contains a
// line break, only line breaks separate entries, because the name of a type may contain any
// other character.
func (l *AllowList) Set(text string) error {
	separator := ";"
	if strings.Contains(text, "\n") {
		separator = "\n"
	}
	for entry := range strings.SplitSeq(text, separator) {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		if err := l.add(entry); err != nil {
			return err
		}
	}
	return nil
}

func (l *AllowList) add(entry string) error {
	at := strings.LastIndexByte(entry, '=')
	if at < 1 {
		return fmt.Errorf("%q is not TYPE=USERS, such as pdf=1001,render,@50,token:gpu", entry)
	}
	typ, users := strings.TrimSpace(entry[:at]), entry[at+1:]
	if err := dispatcherd.CheckType(typ); err != nil {
		return fmt.Errorf("%q: %w", typ, err)
	}
	if _, twice := l.byType[typ]; twice {
		return fmt.Errorf("type %q is listed twice; give all its users at once", typ)
	}
	var all []string
	for name := range strings.SplitSeq(users, ",") {
		if name = strings.TrimSpace(name); name == "" { // a list may be empty
			continue
		}
		user, err := resolved(name)
		if err != nil {
			return fmt.Errorf("type %q: %w", typ, err)
		}
		all = append(all, user)
	}
	if l.byType == nil {
		l.byType = map[string][]string{}
	}
	l.byType[typ] = all
	return nil
}

// resolved returns a user (1001, render) or a group (@50, @staff) with its number, and a token (token:gpu) or a certificate (cert:gpu-1)
// as it is.
func resolved(name string) (string, error) {
	kind, proof, proven := strings.Cut(name, ":")
	switch {
	case proven && proof != "" && (kind == "token" || kind == "cert"):
		return name, nil
	case proven:
		return "", fmt.Errorf("%q is no user: give a number, a name, @GROUP, token:NAME or cert:NAME", name)
	}
	group, isGroup := strings.CutPrefix(name, "@")
	number := group
	var err error
	switch isName := strings.Trim(group, "0123456789") != ""; {
	case isName && isGroup:
		var g *user.Group
		if g, err = user.LookupGroup(group); err == nil {
			number = g.Gid
		}
	case isName:
		var u *user.User
		if u, err = user.Lookup(name); err == nil {
			number = u.Uid
		}
	}
	if err != nil {
		return "", fmt.Errorf("%w: give a number, or a name of this machine", err)
	}
	id, err := strconv.ParseUint(number, 10, 32)
	if err != nil || id == math.MaxUint32 { // the kernel's value for an unknown id
		return "", fmt.Errorf("%q is no id: give a number, or a name of this machine", group)
	}
	return strings.TrimSuffix(name, group) + strconv.FormatUint(id, 10), nil
}

// String returns the entries in the form that Set takes.
func (l *AllowList) String() string {
	var entries []string
	for _, typ := range slices.Sorted(maps.Keys(l.byType)) {
		entries = append(entries, typ+"="+strings.Join(l.byType[typ], ","))
	}
	return strings.Join(entries, ";")
}

// Type names the kind of value in help texts.
func (*AllowList) Type() string { return "type=users" }

// Objection returns why a peer may not serve a type, "" if it may. A peer whose user the
// kernel does not report is on no list.
func (l *AllowList) Objection(p workerproto.Peer, typ string) string {
	if _, permitted := l.entry(p, typ); permitted {
		return ""
	}
	return fmt.Sprintf("%s may not serve type %q: only other users may; run the worker as one of them, "+
		"or add %s to --allow (table [allow]) of the dispatcher and restart it", p, typ, entryFor(p))
}

// CallerObjection returns why a peer may not submit, read or cancel jobs of a type, "" if it
// may.
func (l *AllowList) CallerObjection(p workerproto.Peer, typ string) string {
	entry, permitted := l.entry(p, typ)
	if permitted {
		return ""
	}
	return fmt.Sprintf("%s may not use jobs of type %q: the entry %q of --allow-api lists other users; call as one of them, "+
		"or add %s to the entry (table [allow-api]) of the dispatcher and restart it", p, typ, entry, entryFor(p))
}

// LimitsObjection returns why a peer may not use what concerns jobs of all types, "" if it may: keys, limits
// and the members of batches. Each entry must permit the peer.
func (l *AllowList) LimitsObjection(p workerproto.Peer) string {
	for _, typ := range slices.Sorted(maps.Keys(l.byType)) {
		if _, permitted := l.entry(p, typ); !permitted {
			return fmt.Sprintf(
				"%s may not do this, because it concerns jobs of all types (keys, limits, members of batches), and the "+
					"entry %q of --allow-api lists other users; "+
					"call as a user of each entry, or use SQL",
				p, typ,
			)
		}
	}
	return ""
}

// entry returns the name of the entry that applies to a type, and whether it permits the
// peer. Without an entry every peer is permitted. No list contains an unknown id (-1), or a proof without a name.
func (l *AllowList) entry(p workerproto.Peer, typ string) (name string, permitted bool) {
	users, listed := l.byType[typ]
	if !listed {
		typ = anyOther
		users, listed = l.byType[anyOther]
	}
	peer := []string{strconv.Itoa(p.UID), "@" + strconv.Itoa(p.GID), "token:" + p.Token, "cert:" + p.Certificate}
	return typ, !listed || slices.ContainsFunc(peer, func(name string) bool { return slices.Contains(users, name) })
}

// entryFor returns how a list names a peer.
func entryFor(p workerproto.Peer) string {
	if p.UID < 0 {
		return p.String()
	}
	return "the uid"
}

// NamesProofs reports whether a list names a token or a certificate.
func (l *AllowList) NamesProofs() bool {
	for _, users := range l.byType { // order-free: whether there is one
		if strings.Contains(strings.Join(users, ","), ":") {
			return true
		}
	}
	return false
}

// Empty reports whether no type is listed.
func (l *AllowList) Empty() bool { return len(l.byType) == 0 }

// Check returns an error if types are listed on a system that does not report
// the user of a connection.
func (l *AllowList) Check() error {
	if !l.Empty() && runtime.GOOS != "linux" {
		return errors.New("--allow and --allow-api need the user of each connection, which only Linux reports")
	}
	return nil
}
