package workerproto

// maxNames and maxNameLength limit the table of names of a connection.
const (
	maxNames      = 1024
	maxNameLength = 128
)

// names interns strings that occur in many frames, so that reading such a string again
// allocates nothing. intern compares the most recently added string first. In most
// streams this is the session's nonce.
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
