package workerproto

// Log is a line of a job's log.
//
//	{"op":"log","job":42,"attempt":1,"session":"9f…","level":"warn","message":"font missing"}
type Log struct {
	Execution
	Level   Level
	Message string // cut to MaxMessageLength bytes
}

// Level is the severity of a Log.
type Level string

// The levels. Other values are rejected; an absent one is LevelInfo.
const (
	LevelDebug Level = "debug"
	LevelInfo  Level = "info"
	LevelWarn  Level = "warn"
	LevelError Level = "error"
)

func (*Log) fromWorker() {}

func (m *Log) appendTo(dst []byte) []byte {
	dst = m.appendFields(append(dst, `{"op":"log"`...))
	dst = appendText(dst, `,"level":`, string(m.Level))
	return append(appendText(dst, `,"message":`, m.Message), '}')
}

func (m *Log) field(key []byte, s *scanner) {
	switch string(key) {
	case "level":
		m.Level = Level(s.symbol(maxSymbol))
	case "message":
		m.Message = s.text(MaxMessageLength)
	default:
		if !m.member(key, s) {
			s.unknown(key)
		}
	}
}

func (m *Log) check(s *scanner) {
	m.Execution.check(s)
	switch m.Level {
	case "":
		m.Level = LevelInfo
	case LevelDebug, LevelInfo, LevelWarn, LevelError:
	default:
		s.bad("field \"level\" must be debug, info, warn or error")
	}
}
