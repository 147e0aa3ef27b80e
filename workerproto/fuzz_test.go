package workerproto

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

func FuzzDecodeWorkerFrame(f *testing.F) {
	for _, frame := range everyWorkerFrame() {
		f.Add(Append(nil, frame))
	}
	for _, members := range []string{
		`"resumes":true`, `"resumes":false`, `"resumes":null`, `"resumes":1`,
		`"running":[{"slot":1,"types":["a"],"job":42,"attempt":1,"session":"n","times":1}],"resumes":true`,
		`"running":[{"slot":1,"types":["a"],"job":42,"attempt":1,"session":"n","times":65534},` +
			`{"slot":2,"types":["a"],"job":43,"attempt":1,"session":"n","times":65536}]`,
		`"running":[{"slot":1,"types":["a"],"job":42,"attempt":1,"session":"n","times":-1}]`,
		`"running":[{"slot":1,"types":["a"],"job":42,"attempt":1,"session":"n","times":2147483648}]`,
		`"running":[{"slot":1,"types":["a"],"job":42,"attempt":1,"session":"n","times":1e0}]`,
	} {
		f.Add([]byte(`{"op":"hello","versions":[1,1],"worker":"w","slots":[],` + members + `}`))
	}
	for _, members := range []string{
		`"request":0,"jobs":[]`, `"request":1,"jobs":{}`, `"request":1,"jobs":[{}`, `"request":1,"detached":null,"jobs":[]`,
	} {
		f.Add([]byte(`{"op":"spawn","job":42,"attempt":1,"session":"n",` + members + `}`))
	}
	f.Add([]byte(`{"op":"done","job":1e2,"attempt":null,"x":[[[{}]]],"session":"\ud800\u0041"}`))
	fuzzDecode(f, func(line []byte) (WorkerFrame, *Error) { return NewWorkerDecoder().Decode(line) })
}

func FuzzDecodeDispatcherFrame(f *testing.F) {
	for _, frame := range everyDispatcherFrame() {
		f.Add(Append(nil, frame))
	}
	fuzzDecode(f, func(line []byte) (DispatcherFrame, *Error) { return NewDispatcherDecoder(false).Decode(line) })
}

func FuzzDecodeCallerFrame(f *testing.F) {
	for _, frame := range everyCallerFrame() {
		f.Add(Append(nil, frame))
	}
	f.Add([]byte(`{"op":"request","type":"\u00e4","id":1e0,"durable":null,"priority":11,"payload":[1,]}`))
	fuzzDecode(f, func(line []byte) (CallerFrame, *Error) { return NewCallerDecoder().Decode(line) })
}

func FuzzDecodeFrameToCaller(f *testing.F) {
	for _, frame := range everyFrameToCaller() {
		f.Add(Append(nil, frame))
	}
	fuzzDecode(f, func(line []byte) (DispatcherFrame, *Error) {
		d := NewDispatcherDecoder(true)
		return d.Decode(line)
	})
}

// fuzzDecode compares a decoder with encoding/json. It also requires that an accepted frame
// does not change if it is encoded and decoded again.
func fuzzDecode[F frame](f *testing.F, decode func(line []byte) (F, *Error)) {
	f.Fuzz(func(t *testing.T, line []byte) {
		frame, err := decode(line)
		compareWithStdlib(t, line, frame, err)
		if err != nil || bytes.IndexByte(line, '\n') >= 0 {
			return
		}
		again, err := decode(Append(nil, frame))
		require.Nil(t, err)
		require.Equal(t, frame, again)
	})
}

// compareWithStdlib requires that the decoder and encoding/json accept the same lines and
// decode the same values.
func compareWithStdlib(t *testing.T, line []byte, frame frame, err *Error) {
	var members map[string]json.RawMessage
	wellFormed := utf8.Valid(line) && json.Unmarshal(line, &members) == nil && members != nil
	if err != nil && err.Code == BadJSON {
		if wellFormed && !strings.Contains(err.Message, "nested") {
			t.Fatalf("rejected well-formed %q: %v", line, err)
		}
		return
	}
	require.True(t, wellFormed, "accepted malformed %q", line)
	if err != nil {
		return
	}
	if n, ok := frame.(named); ok {
		var job int64
		var attempt int32
		var session string
		require.NoError(t, unmarshal(members["job"], &job))
		require.NoError(t, unmarshal(members["attempt"], &attempt))
		require.NoError(t, unmarshal(members["session"], &session))
		e := n.execution()
		require.EqualValues(t, job, e.Job)
		require.EqualValues(t, attempt, e.Attempt)
		require.Equal(t, strings.ReplaceAll(session, "\x00", "\ufffd"), e.Session)
	}
	switch f := frame.(type) {
	case *Done:
		require.Equal(t, string(members["result"]), string(f.Result))
	case *Partial:
		require.Equal(t, string(members["data"]), string(f.Data))
	case *Spawn:
		require.Equal(t, string(members["jobs"]), string(f.Jobs))
	case *Spawned:
		var ids []dispatcherd.JobID
		require.NoError(t, unmarshal(members["ids"], &ids))
		require.Len(t, f.IDs, len(ids))
		for i := range ids {
			require.Equal(t, ids[i], f.IDs[i])
		}
	case *Job:
		require.Equal(t, string(members["payload"]), string(f.Payload))
	case *Request:
		require.Equal(t, string(members["payload"]), string(f.Payload))
	case *Answer:
		require.Equal(t, string(members["result"]), string(f.Result))
	case *Fail:
		var text string
		require.NoError(t, unmarshal(members["error"], &text))
		text = strings.ReplaceAll(text, "\x00", "\ufffd")
		require.True(t, strings.HasPrefix(text, f.Error) && len(text)-len(f.Error) <= max(0, len(text)-MaxMessageLength+utf8.UTFMax))
	}
}

func unmarshal(raw json.RawMessage, v any) error {
	if raw == nil {
		return nil
	}
	return json.Unmarshal(raw, v)
}

func FuzzCheckJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1,-2.5e+3,"\u00e9\\"],"b":{}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if CheckJSON(raw) == nil && !json.Valid(raw) {
			t.Fatalf("accepted malformed %q", raw)
		}
	})
}

// FuzzSession applies random sequences of frames to the state of a session.
func FuzzSession(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte{0, 0})
	f.Add([]byte{1, 0, 0, 12, 20, 17, 33, 0xff})
	f.Fuzz(func(t *testing.T, script []byte) {
		m := &sessionState{nonce: "right", limits: Limits{MaxSlots: 4, MaxTypesPerSlot: 2}.WithDefaults()}
		greeted, drained := false, false
		slots := map[int32]bool{} // model of the session
		for _, c := range script {
			frame := scripted(c)
			before := len(m.slots)
			err := m.accept(frame)
			_, isHello := frame.(*Hello)
			require.True(t, err != nil || isHello != greeted, "hello comes first and once")
			if err != nil {
				require.Len(t, m.slots, before, "a refused frame changes nothing")
				if err.Fatal || !greeted {
					return // the session ends
				}
				continue
			}
			switch fr := frame.(type) {
			case *Hello:
				greeted = true
				for _, sl := range fr.Slots {
					slots[sl.Number] = true
				}
			case *SlotAdd:
				require.False(t, drained)
				for _, sl := range fr.Slots {
					require.False(t, slots[sl.Number])
					slots[sl.Number] = true
				}
			case *SlotRemove:
				for _, n := range fr.Slots {
					require.True(t, slots[n])
					delete(slots, n)
				}
			case *Drain:
				drained = true
			case named:
				require.Equal(t, "right", fr.execution().Session)
			}
			require.Len(t, m.slots, len(slots))
			require.LessOrEqual(t, len(m.slots), 4)
		}
	})
}

// scripted converts a byte to a frame: the low bits select the type, the high bits
// the variant.
func scripted(c byte) WorkerFrame {
	v := int32(c >> 4)
	types := [][]string{{"a"}, {"a", "b"}, {"a", "b", "c"}, {}, {"a", "a"}, {"\x01"}}[v%6]
	session := []string{"right", "wrong"}[v%2]
	switch c % 8 {
	case 0:
		return &Hello{MinVersion: 1 + int(v/8), MaxVersion: 2, Worker: "w", Resumes: v%2 == 1, Slots: []Slot{{v, []string{"a"}}}}
	case 1:
		return &SlotAdd{Slots: []Slot{{v, types}}}
	case 2:
		return &SlotAdd{Slots: []Slot{{v, []string{"a"}}, {v % 3, []string{"b"}}}}
	case 3:
		return &SlotRemove{Slots: []int32{v}}
	case 4:
		return &SlotRemove{Slots: []int32{v, v % 2}}
	case 5:
		return &Done{Execution: Execution{Job: 1, Attempt: 1, Session: session}}
	case 6:
		return &Log{Execution: Execution{Job: 1, Attempt: 1, Session: session}}
	}
	if v < 14 {
		return &Ping{}
	}
	return &Drain{}
}
