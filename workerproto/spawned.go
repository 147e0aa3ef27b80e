package workerproto

import "github.com/dispatcherd/dispatcherd"

// maxRule bounds the name of a rule, in bytes, as Postgres bounds names of constraints.
const maxRule = 63

// Spawned answers a Spawn: either with the ids of the children, in the order of the jobs,
// or with the rule that prevented them: the name of a constraint, or a rule of package
// dispatcherd. Unless it is RuleOutcomeIsKnown, the spawn has inserted no child.
//
//	{"op":"spawned","job":42,"attempt":1,"session":"9f…","request":1,"ids":[43,44]}
type Spawned struct {
	sentByDispatcher
	Execution

	Request int64
	IDs     []dispatcherd.JobID
	Rule    string // "" = the children were inserted
	Error   string // for people; with Rule
}

func (m *Spawned) members(c *codec) {
	m.begin(c, "spawned")
	integer(c, "request", &m.Request, required)
	list(c, "ids", &m.IDs, 0, listedInteger, optional)
	symbol(c, "rule", &m.Rule, maxRule, optional)
	c.text("error", &m.Error, MaxMessageLength, optional)
}
