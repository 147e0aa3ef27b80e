package workerproto

// Hello is the first frame of a connection and is sent once. It contains the
// versions of the protocol that the worker speaks, its name, its free slots, and
// the executions of earlier sessions that it offers to resume. A busy slot is in
// Running and not in Slots.
//
//	{"op":"hello","versions":[1,1],"worker":"w1","slots":[{"slot":0,"types":["pdf"]}],"running":[]}
type Hello struct {
	sentByWorker

	MinVersion, MaxVersion int
	Worker                 string // 1 to dispatcherd.MaxWorkerLength bytes; for people, need not be unique
	Slots                  []Slot
	Running                []Running
	// Resumes says that the worker will offer its executions in the next hello when a
	// session ends. If Resumes is false and Running is empty, the dispatcher retries the
	// jobs of the session at once when the session ends.
	Resumes bool
	// Moves says that the worker knows several dispatchers. After a GoAway it connects to another one and
	// offers its executions there.
	Moves bool
	// Process identifies the process of the worker in all its connections, so that a run of a
	// startup-worker schedule is not repeated after it reconnects. It should be random. Without it
	// each connection counts as a new process, unless it resumes executions.
	Process string
	// Token proves who the worker is. It is sent over TCP only.
	Token string
}

// Running is a resume offer: an execution that began in an earlier session, with
// the slot that it occupies. If the dispatcher resumes the execution
// ([Session.Resume]), the slot is registered as busy. Otherwise the slot does not
// exist until the worker adds it with a slot_add.
type Running struct {
	Execution // Session is the nonce of the session in which the execution began
	Slot
	Generation int // number of offers of this execution, this one included; 0 = the worker does not count
}

func (m *Hello) members(c *codec) {
	c.op("hello")
	c.versions(&m.MinVersion, &m.MaxVersion)
	c.text("worker", &m.Worker, unbounded, optional) // sessionState.hello requires it, with a better message
	list(c, "slots", &m.Slots, noSlot, listed[Slot], always)
	list(c, "running", &m.Running, Running{Slot: noSlot}, listed[Running], optional)
	c.boolean("resumes", &m.Resumes, false, optional)
	c.boolean("moves", &m.Moves, false, optional)
	symbol(c, "process", &m.Process, maxNonce, optional)
	symbol(c, "token", &m.Token, maxBearer, optional)
}

func (r *Running) members(c *codec) {
	r.Slot.members(c)
	r.Execution.members(c)
	integer(c, "times", &r.Generation, optional)
}
