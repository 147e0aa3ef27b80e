package workerproto

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

var someExecution = Execution{Job: 42, Attempt: 3, Session: "9f86d081884c7d659a2feaa0c55ad015"}

// everyWorkerFrame contains one frame of each type with all fields set.
func everyWorkerFrame() []WorkerFrame {
	x := someExecution
	return []WorkerFrame{
		&Hello{Resumes: true, Moves: true, MinVersion: 1, MaxVersion: 2, Worker: "wörker \"1\"",
			Slots:   []Slot{{0, []string{"a"}}, {7, []string{"a", "b"}}},
			Running: []Running{{Execution: x, Slot: Slot{3, []string{"c"}}, Generation: 2}}},
		&SlotAdd{Slots: []Slot{{1, []string{"excel", "pdf"}}}},
		&SlotRemove{Slots: []int32{1, 2}},
		&Done{Execution: x, Result: []byte(`{"a":[1,2.5e3,"\u00e9"],"b":null}`)},
		&Done{Execution: x},
		&Done{Execution: Execution{Job: -7, Attempt: 1, Session: "s"}, Result: []byte(`null`)},
		&Fail{Execution: x, Error: "bad\n\t\"page\" \\ \x01", Permanent: true, RetryAfter: 5 * time.Second},
		&Release{Execution: x, Reason: "stops"},
		&Progress{Execution: x, Done: 3, Total: 10, Message: "page 3"},
		&Partial{Execution: x, Data: []byte(`"chunk"`)},
		&Log{Execution: x, Level: LevelWarn, Message: "日本"},
		&Spawn{Execution: x, Request: 7, Detached: true, Jobs: []byte(`[{"type":"pdf","payload":{"page":1}}]`)},
		&Drain{}, &Goodbye{}, &Ping{}, &Pong{},
	}
}

// everyDispatcherFrame contains one frame of each type with all fields set.
func everyDispatcherFrame() []DispatcherFrame {
	x := someExecution
	return []DispatcherFrame{
		&Welcome{Version: 1, Session: x.Session, Dispatcher: "d1", Resumed: []Resumed{{42, 3}, {-1, 1}}, Limits: Parameters{
			MaxFrame: 1 << 20, Heartbeat: 5 * time.Second, Timeout: 15 * time.Second, MaxSlots: 10, MaxTypes: 20, Resume: time.Minute}},
		&Job{
			Execution: x,
			Slot:      3,
			Type:      "pdf",
			Mode:      dispatcherd.OnDemand,
			Payload:   []byte(`{"n":1}`),
			Timeout:   time.Minute,
			Age:       1500 * time.Millisecond,
		},
		&Job{Execution: x, Type: "pdf"},
		&Cancel{Execution: x, Reason: "by the caller"},
		&Stale{Execution: x},
		&Spawned{Execution: x, Request: 7, IDs: []dispatcherd.JobID{43, 1 << 40}},
		&Spawned{Execution: x, Request: 8, Rule: dispatcherd.RuleParentIsRunning, Error: "attempt 3 of job 42 has ended"},
		&Pong{Keep: time.Second},
		&GoAway{Reason: "stops", Grace: 30 * time.Second},
		&Error{Code: WrongSession, Message: "no", Job: 42},
		&Error{Code: NotHello, Message: "no", Fatal: true},
		&Ping{},
		&Pong{},
	}
}

// everyCallerFrame has one of each frame, with every field set.
func everyCallerFrame() []CallerFrame {
	return []CallerFrame{
		&CallerHello{MinVersion: 1, MaxVersion: 2, Caller: "wéb \"1\""},
		&Request{ID: 7, Type: "pdf", Payload: []byte(`{"page":1}`), Priority: 3, Timeout: 30 * time.Second, CapacityWait: 5 * time.Second,
			Durable: true, Key: "order-4711", CoalesceKey: "c", Events: true},
		&Request{ID: 8, Type: "pdf"},
		&CancelRequest{ID: 7},
		&Ping{}, &Pong{},
	}
}

// everyFrameToCaller has one of each frame, with every field set.
func everyFrameToCaller() []DispatcherFrame {
	return []DispatcherFrame{
		&Welcome{Version: 1, Session: someExecution.Session, Dispatcher: "d1", Limits: Parameters{
			MaxFrame: 1 << 20, Heartbeat: 5 * time.Second, Timeout: 15 * time.Second, MaxRequests: 10}},
		&Queued{ID: 7, Rank: 2, Waiting: 5},
		&Started{ID: 7, Slot: 3, Worker: "w1"},
		&RequestProgress{ID: 7, Data: []byte(`{"done":1,"total":3}`)},
		&RequestPartial{ID: 7, Data: []byte(`null`)},
		&Gap{ID: 7, Missed: 12},
		&Answer{ID: 7, Job: 42, Worker: "w1", Result: []byte(`[1]`)},
		&Answer{ID: 8, Code: "queue-full", Message: "ten wait", RetryAfter: time.Second},
		&Error{Code: DuplicateID, Message: "no"},
		&Ping{}, &Pong{},
	}
}

func TestEveryFrameIsDecodedAsItWasEncoded(t *testing.T) {
	for _, f := range everyWorkerFrame() {
		line := Append(nil, f)
		back, err := NewWorkerDecoder().Decode(line)
		require.Nil(t, err, "%s", line)
		require.Equal(t, f, back, "%s", line)
	}
	for _, f := range everyDispatcherFrame() {
		line := Append(nil, f)
		back, err := NewDispatcherDecoder(false).Decode(line)
		require.Nil(t, err, "%s", line)
		require.Equal(t, f, back, "%s", line)
	}
	for _, f := range everyCallerFrame() {
		line := Append(nil, f)
		back, err := NewCallerDecoder().Decode(line)
		require.Nil(t, err, "%s", line)
		require.Equal(t, f, back, "%s", line)
	}
	for _, f := range everyFrameToCaller() {
		line := Append(nil, f)
		back, err := NewDispatcherDecoder(true).Decode(line)
		require.Nil(t, err, "%s", line)
		require.Equal(t, f, back, "%s", line)
	}
}

func TestFieldOrderIsFreeAndUnknownFieldsAreIgnored(t *testing.T) {
	line := ` { "session" : "s" , "future":{"op":[{},"x"]}, "result" : [ 1 , 2 ] ,"attempt":1, "op" : "done", "job":9 } `
	f, err := NewWorkerDecoder().Decode([]byte(line + "\r\n"))
	require.Nil(t, err)
	require.Equal(t, &Done{Execution: Execution{Job: 9, Attempt: 1, Session: "s"}, Result: []byte(`[ 1 , 2 ]`)}, f)
}

func TestDecodeErrorHasACodeAndAReason(t *testing.T) {
	done := func(fields string) string { return `{"op":"done","job":9,"attempt":1,"session":"s"` + fields + `}` }
	deep := strings.Repeat("[", jsontext.MaxDepth+1) + strings.Repeat("]", jsontext.MaxDepth+1)
	cases := []struct {
		line string
		code Code
		says string
		job  dispatcherd.JobID
	}{
		{``, BadJSON, "no object", 0},
		{`null`, BadJSON, "no object", 0},
		{`[]`, BadJSON, "no object", 0},
		{`{"op":"done"`, BadJSON, "comma or the end", 0},
		{`{"op":"done"} x`, BadJSON, "after the end", 0},
		{`{"op":"done","x":01}`, BadJSON, "number", 0},
		{`{"op":"done","x":tru}`, BadJSON, "word", 0},
		{`{"op":"done","x":"` + "\x01" + `"}`, BadJSON, "control character", 0},
		{`{"op":"done","x":"\q"}`, BadJSON, "escape", 0},
		{"{\"op\":\"done\",\"x\":\"\xff\"}", BadJSON, "UTF-8", 0},
		{done(`,"result":[1,]`), BadJSON, "value is missing", 9},
		{done(`,"result":1 2`), BadJSON, "comma or the end", 9},
		{done(`,"result":` + deep), BadJSON, "nested", 9},
		{`{}`, BadValue, `"op" is missing`, 0},
		{`{"op":7}`, BadValue, "string", 0},
		{`{"op":"launch"}`, UnknownOp, `"launch"`, 0},
		{`{"op":"job","job":1}`, UnknownOp, `"job"`, 0},
		{`{"op":"ping","op":"pong"}`, BadValue, "twice", 0},
		{`{"op":"done","attempt":1,"session":"s"}`, BadValue, `"job"`, 0},
		{`{"op":"done","job":9,"session":"s"}`, BadValue, `"attempt"`, 9},
		{`{"op":"done","job":9,"attempt":1}`, BadValue, `"session"`, 9},
		{`{"op":"done","job":"x","attempt":1,"session":"s"}`, BadValue, `"job" must be a whole number`, 0},
		{`{"op":"done","job":1.0,"attempt":1,"session":"s"}`, BadValue, "whole number", 0},
		{`{"op":"done","job":9223372036854775808,"attempt":1,"session":"s"}`, BadValue, "out of range", 0},
		{`{"op":"done","job":9,"attempt":-1,"session":"s"}`, BadValue, "out of range", 9},
		{done(`,"result":"\u0000"`), BadValue, "Postgres cannot store", 9},
		{done(`,"result":"\ud800x"`), BadValue, "surrogate", 9},
		{done(`,"result":1e99999`), BadValue, "1,024 characters", 9},
		{`{"op":"fail","job":9,"attempt":1,"session":"s","retry":"no"}`, BadValue, `"retry" must be true or false`, 9},
		{`{"op":"fail","job":9,"attempt":1,"session":"s","retry_after_ms":-1}`, BadValue, "out of range", 9},
		{`{"op":"log","job":9,"attempt":1,"session":"s","level":"loud"}`, BadValue, "level", 9},
		{`{"op":"partial","job":9,"attempt":1,"session":"s"}`, BadValue, `"data"`, 9},
		{`{"op":"spawn","job":9,"attempt":1,"session":"s","request":1}`, BadValue, `"jobs" is missing`, 9},
		{`{"op":"spawn","job":9,"attempt":1,"session":"s","request":1,"jobs":{"type":"a"}}`, BadValue, `"jobs" must be an array`, 9},
		{`{"op":"spawn","job":9,"attempt":1,"session":"s","jobs":[]}`, BadValue, `"request" is missing`, 9},
		{`{"op":"spawn","job":9,"attempt":1,"session":"s","request":-1,"jobs":[]}`, BadValue, `"request" is out of range`, 9},
		{`{"op":"hello","versions":[2,1],"worker":"w"}`, BadValue, "versions", 0},
		{`{"op":"hello","versions":1,"worker":"w"}`, BadValue, "versions", 0},
		{`{"op":"slot_add","slots":[{"types":["a"]}]}`, BadValue, `"slot"`, 0},
		{`{"op":"slot_add","slots":,{"slot":1,"types":["a"]}]}`, BadJSON, "missing", 0},
	}
	for _, c := range cases {
		_, err := NewWorkerDecoder().Decode([]byte(c.line))
		require.NotNil(t, err, c.line)
		require.Equal(t, c.code, err.Code, "%s: %v", c.line, err)
		require.Contains(t, err.Message, c.says, c.line)
		if c.code != BadJSON {
			require.Equal(t, c.job, err.Job, c.line)
		}
	}
}

func TestErrorTextIsCutBetweenCharacters(t *testing.T) {
	long := strings.Repeat("ä", dispatcherd.MaxErrorLength)
	f, err := NewWorkerDecoder().Decode([]byte(`{"op":"fail","job":1,"attempt":1,"session":"s","error":"x` + long + `\u0000"}`))
	require.Nil(t, err)
	require.Equal(t, "x"+long[:dispatcherd.MaxErrorLength-2], f.(*Fail).Error)

	f, err = NewWorkerDecoder().Decode([]byte(`{"op":"fail","job":1,"attempt":1,"session":"s","error":"a\u0000\ud800\ud83d\ude00\/\b\f"}`))
	require.Nil(t, err)
	require.Equal(t, "a\ufffd\ufffd😀/\b\f", f.(*Fail).Error, "characters that a text column rejects are replaced")
}

func TestAPayloadWithNewlinesStaysOneLine(t *testing.T) {
	line := Append(nil, &Job{Execution: someExecution, Type: "x", Payload: []byte("{\n \"a\": \"\\n\"\n}")})
	require.Equal(t, 1, strings.Count(string(line), "\n"))
	f, err := NewDispatcherDecoder(false).Decode(line)
	require.Nil(t, err)
	require.JSONEq(t, `{"a":"\n"}`, string(f.(*Job).Payload))
}

func TestCheckJSON(t *testing.T) {
	for _, good := range []string{`1`, ` {"a":"\ud83d\ude00"} `, `-0.5E+12`, `""`} {
		require.NoError(t, CheckJSON([]byte(good)), good)
	}
	for _, bad := range []string{``, `1 2`, `"\u0000"`, `"\udc00"`, "\"\xff\"", `.5`, `1e12345`, strings.Repeat("9", jsontext.MaxNumber+1)} {
		require.Error(t, CheckJSON([]byte(bad)), bad)
	}
}

func TestDecodedFramesStayValid(t *testing.T) {
	d := NewWorkerDecoder()
	line := []byte(`{"op":"done","job":1,"attempt":1,"session":"s","result":"keep"}`)
	f, err := d.Decode(line)
	require.Nil(t, err)
	clear(line)
	_, err = d.Decode([]byte(`{"op":"done","job":2,"attempt":2,"session":"t","result":"other"}`))
	require.Nil(t, err)
	require.Equal(t, &Done{Execution: Execution{Job: 1, Attempt: 1, Session: "s"}, Result: []byte(`"keep"`)}, f)
}

func TestHotFramesAllocateOnlyWhatTheyKeep(t *testing.T) {
	job, done := Append(nil, &benchJob), Append(nil, &benchDone)
	jobs := NewDispatcherDecoder(false)
	dones := NewWorkerDecoder()
	jobs.codec.session, dones.codec.session = benchJob.Session, benchDone.Session
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = jobs.Decode(job) }), 4.0, "the frame, its token, type and payload")
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = dones.Decode(done) }), 2.0, "the frame and its result")
	c := codec{out: make([]byte, 0, 1024)}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.out = c.out[:0]
		c.encode(&benchJob)
		c.encode(&benchDone)
	}))
}
