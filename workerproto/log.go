package workerproto

import (
	"cmp"
	"slices"
)

// Log is a line of a job's log.
//
//	{"op":"log","job":42,"attempt":1,"session":"9f…","level":"warn","message":"font missing"}
type Log struct {
	sentByWorker
	Execution

	Level   Level
	Message string // cut to MaxMessageLength bytes
}

// Level is the severity of a Log.
type Level string

// The levels. Other values are rejected. An absent level is LevelInfo.
const (
	LevelDebug Level = "debug"
	LevelInfo  Level = "info"
	LevelWarn  Level = "warn"
	LevelError Level = "error"
)

func (m *Log) members(c *codec) {
	m.begin(c, "log")
	symbol(c, "level", &m.Level, maxSymbol, optional)
	c.text("message", &m.Message, MaxMessageLength, optional)
	if c.task != checking {
		return
	}
	m.Level = cmp.Or(m.Level, LevelInfo)
	if !slices.Contains([]Level{LevelDebug, LevelInfo, LevelWarn, LevelError}, m.Level) {
		c.bad("field \"level\" must be debug, info, warn or error")
	}
}
