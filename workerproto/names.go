package workerproto

// maxNames and maxNameLength bound what one connection's table of names keeps.
const (
	maxNames      = 1024
	maxNameLength = 128
)

// names remembers the strings that repeat from frame to frame, so that reading
// one again allocates nothing. The most recent one is compared first: in most
// streams it is the session's nonce over and over.
type names struct {
	last string
	all  map[string]string
}

func (n *names) intern(b []byte) string {
	if string(b) == n.last {
		return n.last
	}
	if name, ok := n.all[string(b)]; ok {
		return name
	}
	name := string(b)
	if len(name) > maxNameLength {
		return name
	}
	if n.all == nil || len(n.all) >= maxNames {
		n.all = make(map[string]string)
	}
	n.all[name] = name
	n.last = name
	return name
}
